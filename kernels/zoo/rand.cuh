#pragma once
#if ZOO_REFERENCE
struct Rng { u64 state_hi, state_lo, inc_hi, inc_lo; u32 buffer; u32 has_buffer; };
ZOO_FN u64 rng_next64(Rng& r){ unsigned __int128 s=((unsigned __int128)r.state_hi<<64)|r.state_lo, inc=((unsigned __int128)r.inc_hi<<64)|r.inc_lo; unsigned __int128 m=((unsigned __int128)2549297995355413924ull<<64)|4865540595714422341ull; s=s*m+inc; r.state_hi=s>>64; r.state_lo=(u64)s; u64 x=r.state_hi^r.state_lo; int k=(int)(r.state_hi>>58); return (x>>k)|(x<<((-k)&63)); }
ZOO_FN real rng_uniform(Rng& r, real lo, real hi){ return lo+(hi-lo)*((rng_next64(r)>>11)*(1.0/9007199254740992.0)); }
#else
struct Rng { u64 seed; u32 episode, draw; };
ZOO_FN u32 rng_bits(Rng& r){ u64 z=r.seed*0x9E3779B97F4A7C15ull+((u64)r.episode<<32)+r.draw++; z=(z^(z>>30))*0xBF58476D1CE4E5B9ull; z=(z^(z>>27))*0x94D049BB133111EBull; return (u32)(z>>32);}
ZOO_FN real rng_uniform(Rng& r, real lo, real hi){ return lo+(hi-lo)*(real)(rng_bits(r)>>8)*(1.0f/16777216.0f);}
#endif
