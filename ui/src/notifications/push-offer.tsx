/** Offers push messages where the person looks at notifications anyway. The browser asks only after a click. */

import { useState } from "react";
import type { ReactNode } from "react";
import { readStored, store } from "../shell/stored";
import { useUser } from "../user";
import { isPushPossible, turnOnPush } from "./push";

const ASKED = "push-offer";

export function PushOffer(): ReactNode {
  const user = useUser();
  const [state, setState] = useState<"offer" | "busy" | "on" | "refused" | "hidden">(() =>
    isPushPossible() && Notification.permission === "default" && readStored(user, ASKED) === null
      ? "offer"
      : "hidden",
  );
  if (state === "hidden") return null;
  const answered = (): void => store(user, ASKED, "answered");
  const turnOn = async (): Promise<void> => {
    setState("busy");
    answered();
    setState((await turnOnPush().catch(() => false)) ? "on" : "refused");
  };
  const notNow = (): void => {
    answered();
    setState("hidden");
  };
  if (state === "on") return <p role="status">This device will show notifications.</p>;
  if (state === "refused") return <p role="status">This browser does not allow notifications.</p>;
  return (
    <div className="push-offer">
      <p>Show these on this device, even when Outlast is closed?</p>
      <button type="button" className="button" disabled={state === "busy"} onClick={() => void turnOn()}>
        Turn on
      </button>
      <button type="button" className="quiet-button" onClick={notNow}>
        Not now
      </button>
    </div>
  );
}
