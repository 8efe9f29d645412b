/* Search from the file system: browsers run no worker there, so its script runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inner.importScripts = (...addresses) => Promise.all(addresses.map(one => this.load(one)));
      this.ready = this.load(address);
    }

    load(address) {
      const script = this.inner.document.createElement("script");
      script.src = new URL(address, document.baseURI).href;
      return new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${script.src}`));
        this.inner.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }
  };
}
