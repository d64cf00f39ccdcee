/** Lets the app open without a network. What it shows then comes from the server as soon as there is one. */

export function registerServiceWorker(): void {
  if (!import.meta.env.PROD || !("serviceWorker" in navigator)) return;
  addEventListener("load", () => {
    // Private windows and plain HTTP forbid it. The app works without.
    navigator.serviceWorker.register("/sw.js").catch(() => {});
  });
}
