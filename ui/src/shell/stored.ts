/**
 * What a browser keeps for a user. Storage may be full, or forbidden in a private window: then nothing is kept,
 * and nothing else depends on it. Only the theme is kept elsewhere, because it belongs to the device.
 */

export function readStored(user: string, name: string): string | null {
  try {
    return localStorage.getItem(keyOf(user, name));
  } catch {
    return null;
  }
}

/** Null removes it. */
export function store(user: string, name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(keyOf(user, name));
    else localStorage.setItem(keyOf(user, name), value);
  } catch {
    // Forgotten on reload.
  }
}

/** The names that begin with `prefix`. */
export function storedNames(user: string, prefix: string): readonly string[] {
  const start = keyOf(user, "");
  try {
    const names = Object.keys(localStorage).filter((key) => key.startsWith(start + prefix));
    return names.map((key) => key.slice(start.length));
  } catch {
    return [];
  }
}

function keyOf(user: string, name: string): string {
  return `outlast:${encodeURIComponent(user)}:${name}`;
}
