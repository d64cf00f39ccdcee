/** WebSocket where it works, Server-Sent Events where it does not. */

import type { Transport } from "./transport.js";

/** A proxy may swallow a WebSocket silently. One that is not open by then is given up. */
export const SOCKET_LIMIT_MS = 4_000;
/** After this many WebSockets in a row failed where the fallback worked, only the fallback is used. */
const SOCKETS_BEFORE_GIVING_UP = 2;

/**
 * Tries `first`, and right after it `second` if `first` does not open. A server that restarts refuses both, which
 * says nothing about `first`.
 */
export function eitherTransport(first: Transport, second: Transport): Transport {
  let failed = 0;
  let used = first;
  return {
    get scarce() {
      return used.scarce;
    },
    open(target, sink) {
      const bySecond = (failures: number): (() => void) => {
        used = second;
        const opened = (): void => ((failed = failures), sink.opened());
        return second.open(target, { ...sink, opened });
      };
      if (failed >= SOCKETS_BEFORE_GIVING_UP) return bySecond(failed);
      used = first;
      let isOpen = false;
      const giveUp = (): void => {
        clearTimeout(timer);
        close();
        close = bySecond(failed + 1);
      };
      const timer = setTimeout(giveUp, SOCKET_LIMIT_MS);
      let close: () => void = () => {};
      try {
        close = first.open(target, {
          ...sink,
          opened() {
            isOpen = true;
            failed = 0;
            clearTimeout(timer);
            sink.opened();
          },
          // A connection that was open does work, whatever ended it.
          closed: (why) => (isOpen ? sink.closed(why) : giveUp()),
        });
      } catch {
        // A content security policy may forbid WebSockets.
        giveUp();
      }
      return () => {
        clearTimeout(timer);
        close();
      };
    },
  };
}
