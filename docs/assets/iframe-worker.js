// A page that is read as a file may start no worker. Search then runs in a hidden frame instead.
(function () {
  "use strict";
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = (this.inner = frame.contentWindow);
      inner.document.open();
      inner.document.write("<!doctype html><html><body></body></html>");
      inner.document.close();
      inner.postMessage = (data) => this.tell(data);
      inner.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
      this.load(String(url)).then(() => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.pass(data));
      });
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inner.document.createElement("script");
        script.src = new URL(url, document.baseURI).href;
        script.onload = resolve;
        script.onerror = reject;
        this.inner.document.body.appendChild(script);
      });
    }

    postMessage(data) {
      if (this.ready) this.pass(data);
      else this.waiting.push(data);
    }

    pass(data) {
      this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }));
    }

    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  }

  window.Worker = FrameWorker;
})();
