/** Lets the app open without a network. Conversations load when the server can be reached. */

export function registerServiceWorker(): void {
  if (!import.meta.env.PROD || !("serviceWorker" in navigator)) return;
  addEventListener("load", () => {
    // Private windows and plain HTTP do not allow it. The app works without it.
    navigator.serviceWorker.register("/sw.js").catch(() => {});
  });
}
