"use strict";

/* Keeps the page, so that chats can be read while the server is down. The server's own comes first. */

const kept = caches.open("akunu");

addEventListener("install", (event) => event.waitUntil(kept.then((cache) => cache.add("/"))));

addEventListener("fetch", (event) => {
  const { mode, url } = event.request;
  if (mode === "navigate" && new URL(url).pathname === "/") event.respondWith(newest(event.request));
});

async function newest(request) {
  const cache = await kept;
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put("/", response.clone());
    return response;
  } catch (error) {
    const found = await cache.match("/");
    if (found) return found;
    throw error;
  }
}
