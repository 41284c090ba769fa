"""What is said of a comparison: a table, a plot, and a section of the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from gpu_zoo.bench.report import new_table, short, span, wide_console

Report = dict[str, Any]  # what compare_training.py writes as JSON
PAGE = Path(__file__).resolve().parents[3] / "docs" / "performance.md"
BEGIN, END = "<!-- training: begin -->", "<!-- training: end -->"
MODES = ("environment", "acting", "training")
OURS, LIMIT = "gpu_zoo", "products alone"
LEVEL = -10.0  # the return whose first time is told; random actions make -26, the best some -8.5
LAST = 10  # iterations whose mean is the return at the end
GREY = "#808080"  # to be read on white and on black
# Told apart by those who see few colours, and by the dashes.
COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#b58900")
DASHES = ("-", "--", ":", "-", "--", "-")


def ratios(report: Report, row: dict[str, Any]) -> list[float]:
    """How many times its training rate ours is, within each turn."""
    ours = next((r for r in report["rows"] if r["name"] == OURS), None)
    if ours is None or row is ours:
        return []
    pairs = zip(*(r["env_steps_per_s"].get("training", []) for r in (ours, row)), strict=False)
    return [mine / theirs for mine, theirs in pairs]


def speeds(report: Report) -> tuple[list[str], list[list[str]]]:
    """Header and rows: steps a second and their spread, and ours over theirs."""
    agents = report["setting"]["agents"]
    header = ["agent steps / environment steps a second", *MODES, f"{OURS} / it"]
    rows = []
    for row in report["rows"]:
        cells = [_speed(row["env_steps_per_s"].get(mode), agents) for mode in MODES]
        turns = ratios(report, row)
        cells.append(f"{short(median(turns))} ({span(turns)})" if turns else "")
        rows.append([row["name"], *cells])
    return header, rows


def _speed(rates: list[float] | None, agents: int) -> str:
    """Median of agents' and of environments' steps, and half the range as a share of it."""
    if not rates:
        return "-"
    middle = median(rates)
    spread = (max(rates) - min(rates)) / 2 / middle
    return f"{short(middle * agents)} / {short(middle)} ±{spread:.0%}"


def runs(report: Report) -> tuple[list[str], list[list[str]]]:
    """Header and rows: how far each came in which time."""
    header = [
        "a run", "seconds", "environment steps", f"return, mean of the last {LAST} iterations",
        f"seconds to {LEVEL:g}",
    ]  # fmt: skip
    rows = []
    for row in report["rows"]:
        curve = [point for point in row.get("curve", []) if point["return"] is not None]
        if not curve:
            continue
        there = [point["seconds"] for point in curve if point["return"] >= LEVEL]
        last = [point["return"] for point in curve[-LAST:]]
        rows.append([
            row["name"],
            f"{curve[-1]['seconds']:.1f}{'' if row['finished'] else ', stopped'}",
            f"{curve[-1]['env_steps']:,}",
            f"{sum(last) / len(last):.2f}",
            f"{there[0]:.1f}" if there else "not reached",
        ])  # fmt: skip
    return header, rows


def remarks(report: Report) -> Iterator[str]:
    """How each was measured, what its compilation took, and how near ours is to the products."""
    for row in report["rows"]:
        took = row["facts"].get("seconds to compile", {})
        compiled = f"; {sum(took.values()):.0f} s of compilation, not counted" if took else ""
        yield f"{row['name']}: {row['method']}{compiled}"
    by_name = {row["name"]: row for row in report["rows"]}
    agents = report["setting"]["agents"]
    for threads in ("", ", two threads"):
        ours, limit = by_name.get(OURS + threads), by_name.get(LIMIT + threads)
        if ours is None or limit is None:
            continue
        facts = limit["facts"]
        by_products = median(limit["env_steps_per_s"]["training"])
        share = median(ours["env_steps_per_s"]["training"]) / by_products
        yield (
            f"an agent's step takes {facts['flops an agent step']['all']:,.0f} floating point "
            f"operations of matrix products, {facts['flops an agent step']['acting']:,.0f} of them "
            f"to act. {OURS}{threads} trains at {share:.0%} of the rate that these products have "
            f"by torch.mm alone ({short(by_products * agents)} agent steps a "
            f"second); at the rate of one large product it would be "
            f"{short(facts['agent steps/s if all ran at this rate'])}"
        )
    yield from report["notes"]


def show(report: Report) -> None:
    """Print all of it."""
    console = wide_console()
    console.print("machine: " + ", ".join(f"{k} {v}" for k, v in report["machine"].items()))
    for header, rows in (speeds(report), runs(report)):
        table = new_table(report["title"])
        for column in header[1:]:
            table.add_column(column, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(
        f"Medians of {report['turns']} turns of about {report['seconds a turn']:g} s, ± half the "
        f"range; {OURS} / it: of the training rates, within a turn (least..most)."
    )
    for remark in remarks(report):
        console.print(f"* {remark}")


def plot(report: Report, path: Path) -> None:
    """Write returns against seconds as an SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    coloured = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style = dict.fromkeys(coloured, GREY)
    with pyplot.rc_context({**style, "svg.fonttype": "none", "svg.hashsalt": "gpu_zoo"}):
        figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
        rows = [row for row in report["rows"] if row.get("curve")]
        for row, colour, dashes in zip(rows, COLOURS, DASHES, strict=False):
            points = [point for point in row["curve"] if point["return"] is not None]
            seconds = [point["seconds"] for point in points]
            returns = [point["return"] for point in points]
            axes.plot(
                seconds, returns, color=colour, linestyle=dashes, linewidth=1.5,
                marker="." if len(points) < 50 else "", label=_label(row),
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("seconds since the run began")
        axes.set_ylabel("mean return of an agent's episode")
        axes.set_title(f"{report['title']}, {report['machine']['cores']} cores")
        axes.grid(color=GREY, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
        figure.savefig(path, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


def _label(row: dict[str, Any]) -> str:
    last = row["curve"][-1]
    ended = "in" if row["finished"] else "stopped after"
    return f"{row['name']}: {short(last['env_steps'])} steps, {ended} {last['seconds']:.0f} s"


def section(report: Report, picture: str) -> str:
    """The documentation's section, in Markdown."""
    machine, given = report["machine"], report["setting"]
    versions = {n: v for row in report["rows"] for n, v in row["versions"].items()}
    stopped = any(row.get("finished") is False for row in report["rows"])
    lines = [
        f"Measured on {report['date']}: {machine['processor']}, {machine['cores']} cores, load "
        f"average at the start {machine['load average at start']:.1f}; "
        + ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        + ".",
        "",
        *_markdown(*speeds(report)),
        f"Medians of {report['turns']} turns of about {report['seconds a turn']:g} s, ± half the "
        f"range. {OURS} / it: of the training rates within a turn, with the range.",
        "",
        f"![Mean return against seconds, a line for each contender]({picture})",
        "",
        *_markdown(*runs(report)),
        f"One run each, seed {given['seed']}, towards {given['total_steps']:,} environment steps"
        + (f"; those stopped had {report['budget']:g} s." if stopped else "."),
        "",
        *(f"- {remark}" for remark in remarks(report)),
    ]
    return "\n".join(lines)


def _markdown(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |"
    yield ""


def write_section(report: Report, picture: Path) -> None:
    """Put the section between its markers in docs/performance.md.

    Raises:
        ValueError: the page has no such markers.
    """
    text = PAGE.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{PAGE}: expected {BEGIN} and {END}, once each")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    shown = picture.resolve().relative_to(PAGE.parent).as_posix()
    PAGE.write_text(f"{before}{BEGIN}\n{section(report, shown)}\n{END}{after}")
