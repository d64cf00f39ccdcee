// Caches the files of the app, so that it opens without a network. Conversations are never cached: everything under
// /v1 goes to the server.

const CACHE = "outlast-shell-" + "%VERSION%";
const FILES = ["%FILES%"];

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll(FILES))
      .then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) =>
        Promise.all(
          names
            .filter((name) => name.startsWith("outlast-shell-") && name !== CACHE)
            .map((name) => caches.delete(name)),
        ),
      )
      .then(() => self.clients.claim()),
  );
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  const isPage = request.mode === "navigate" && /^\/(?:$|c\/|inspect\/|approve\/)/.test(url.pathname);
  // The page comes from the network, so that a new version shows at once, and from the cache when offline.
  if (isPage) event.respondWith(fetch(request).catch(() => kept("/")));
  // The names of assets contain their hash. Other files change with the cache.
  else if (url.pathname.startsWith("/assets/")) event.respondWith(kept(url.pathname, request));
  else if (FILES.includes(url.pathname) && url.pathname !== "/")
    event.respondWith(fetch(request).catch(() => kept(url.pathname)));
});

async function kept(path, request) {
  const found = await caches.match(path, { cacheName: CACHE });
  return found ?? (request ? fetch(request) : Response.error());
}

const WORDS = {
  completed: "Answer is ready",
  error: "Answer failed",
  cancelled: "Answer was stopped",
  interrupted: "Answer was interrupted",
  approval: "Waiting for your decision",
};

self.addEventListener("push", (event) => {
  const { data } = event.data?.json() ?? {};
  if (!data) return;
  const { id, kind, title, conversationId } = data;
  const path = kind === "approval" ? `/approve/${id}` : `/c/${conversationId}`;
  // The tag is the cause, so the same notification never shows twice.
  const options = { body: title ?? "", tag: id, icon: "/icon-192.png", data: { path } };
  event.waitUntil(show(WORDS[kind] ?? "Outlast", options));
});

/** A person who looks at the app sees the bell, and needs no second message. */
async function show(words, options) {
  const windows = await self.clients.matchAll({ type: "window" });
  if (windows.some(({ visibilityState }) => visibilityState === "visible")) return;
  await self.registration.showNotification(words, options);
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data.path));
});

/** Opens the answer in a window that shows the app already, or in a new one. */
async function open(path) {
  const [shown] = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (!shown) return self.clients.openWindow(path);
  await shown.focus();
  return shown.navigate(path);
}
