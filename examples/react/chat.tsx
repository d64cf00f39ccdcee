import { OutlastClient, textOf } from "@outlast/client";
import { OutlastProvider, useConversation, useGeneration } from "@outlast/client/react";
import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const client = new OutlastClient(); // same origin as the page
const shown = () => {}; // errors are also in `error`, which is shown below

function Chat() {
  // The URL names the conversation, so that a reload finds it. Without a name, a new one starts.
  const [from] = useState(() => location.hash.slice(1) || null);
  const { id, view, pending, send, connection, error } = useConversation(from);
  useEffect(() => {
    if (id !== null) history.replaceState(null, "", `#${id}`);
  }, [id]);
  const problem = error ?? (connection.type === "ended" ? connection.error : null);
  return (
    <main>
      <a href="./">New chat</a>
      {view?.messages.map((message) => (
        <p key={message.id} className={message.role} style={{ whiteSpace: "pre-wrap" }}>
          {textOf(view, message)}
        </p>
      ))}
      {pending.map((message) => (
        <p key={message.requestId}>{String(message.content)} ({message.status})</p>
      ))}
      {id !== null && <Controls id={id} />}
      {connection.type === "waiting" && <p>{connection.reason}; reconnecting</p>}
      {problem && <p role="alert">{problem.detail}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const text = String(new FormData(event.currentTarget).get("text"));
          send(text, { whenBusy: "queue" }).catch(shown);
          event.currentTarget.reset();
        }}
      >
        <input name="text" aria-label="Message" required /> <button>Send</button>
      </form>
    </main>
  );
}

/** The controls of the current answer: the same after a reload, in every tab and on every device. */
function Controls({ id }: { id: string }) {
  const { generation, isGenerating, ...can } = useGeneration(id); // shares the chat's connection
  if (isGenerating) return <button onClick={() => can.cancelGeneration().catch(shown)}>Stop</button>;
  switch (generation?.status) {
    case "interrupted": // the server was restarted with `recovery.mode = "ask"`
      return (
        <p>
          <button onClick={() => can.resumeGeneration().catch(shown)}>Resume</button>
          <button onClick={() => can.dismissGeneration().catch(shown)}>Dismiss</button>
        </p>
      );
    case "cancelled":
    case "error":
      return (
        <p>
          {generation.errorMessage ?? "Stopped."}
          <button onClick={() => can.retryGeneration("retry").catch(shown)}>Retry</button>
          <button onClick={() => can.retryGeneration("continue").catch(shown)}>Continue</button>
        </p>
      );
    default:
      return null;
  }
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <OutlastProvider client={client}>
      <Chat />
    </OutlastProvider>
  </StrictMode>,
);
