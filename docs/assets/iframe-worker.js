// A browser starts no Worker on a page that it opened from a file. There, the script of the search
// runs in a hidden frame instead. Its name, IFrameWorker, is how that script recognises the frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.worker = this
      this.frame.srcdoc =
        "<script>postMessage = data => frameElement.worker.dispatchEvent(" +
        "new MessageEvent('message', { data }))</script>" +
        `<script src="${url}"></script>`
      this.loaded = new Promise(resolve => this.frame.addEventListener("load", resolve))
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.loaded.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      )
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
