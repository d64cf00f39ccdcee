/** Subscribes this browser to push messages. */

import { notifications } from "./use-notifications";

export function isPushPossible(): boolean {
  return "serviceWorker" in navigator && "PushManager" in globalThis && "Notification" in globalThis;
}

/** Asks the person, by way of the browser. Returns whether they agreed and the browser could subscribe. */
export async function turnOnPush(): Promise<boolean> {
  if ((await Notification.requestPermission()) !== "granted") return false;
  const [worker, key] = await Promise.all([navigator.serviceWorker.ready, notifications.pushKey()]);
  const known = await worker.pushManager.getSubscription();
  const subscription =
    known ?? (await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key }));
  await notifications.addPush(subscription.toJSON());
  return true;
}

/** After a log-out, this browser must no longer receive that user's notifications. */
export async function turnOffPush(): Promise<void> {
  if (!isPushPossible()) return;
  const worker = await navigator.serviceWorker.getRegistration();
  const known = await worker?.pushManager.getSubscription();
  if (!known) return;
  await notifications.removePush(known.endpoint).catch(() => {});
  await known.unsubscribe();
}
