/** Logging in with an API key, where the server asks for one. */

import { useState } from "react";
import type { FormEvent, ReactNode } from "react";
import { OutlastError } from "@outlast/client";
import { client, useLoginNeeded } from "../client";
import { Logo } from "./logo";

/** Shows the page, or the login if the server wants one. */
export function LoginGate({ children }: { readonly children: ReactNode }): ReactNode {
  return useLoginNeeded() ? <Login /> : children;
}

function Login(): ReactNode {
  const [key, setKey] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [failed, setFailed] = useState<string | null>(null);
  const logIn = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setFailed(null);
    try {
      await client.logIn(key.trim());
      // Everything in memory belongs to nobody or to somebody else.
      location.reload();
    } catch (error) {
      setBusy(false);
      setFailed(told(error));
    }
  };
  return (
    <main className="login">
      <form className="login-form" onSubmit={(event) => void logIn(event)}>
        <h1>
          <Logo />
          Log in to Outlast
        </h1>
        <label htmlFor="login-key">API key</label>
        <input
          id="login-key"
          type="password"
          autoComplete="current-password"
          autoFocus
          required
          value={key}
          onChange={(event) => setKey(event.target.value)}
          aria-describedby="login-hint"
          aria-invalid={failed !== null}
        />
        <p id="login-hint">The operator of this server creates keys with “outlast keys create”.</p>
        {failed !== null && <p role="alert">{failed}</p>}
        <button type="submit" className="button button-primary" disabled={isBusy}>
          Log in
        </button>
      </form>
    </main>
  );
}

function told(error: unknown): string {
  if (!(error instanceof OutlastError)) return "Could not log in.";
  return error.status === 401 ? "This key is not valid." : `Could not log in: ${error.detail}.`;
}
