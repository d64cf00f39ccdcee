import { OutlastClient } from "@outlast/client";
import { OutlastProvider, useGeneration } from "@outlast/client/react";
import { createRoot } from "react-dom/client";

const client = new OutlastClient();

function Answer({ conversationId }: { conversationId: string | null }) {
  const { generation, isGenerating, error, startGeneration, cancelGeneration } = useGeneration(conversationId);
  const text = generation?.contentParts.map((part) => (part.type === "text" ? part.text : "")).join("");
  const ask = () => startGeneration("Say what you do, in 400 words");
  return (
    <main>
      <button onClick={() => (isGenerating ? cancelGeneration() : ask()).catch(() => {})}>
        {isGenerating ? "Stop" : "Ask"}
      </button>
      <p style={{ whiteSpace: "pre-wrap" }}>{text}</p>
      <p role="status">{error?.detail ?? generation?.errorMessage ?? generation?.status}</p>
    </main>
  );
}

createRoot(document.getElementById("root")!).render(
  <OutlastProvider client={client}>
    <Answer conversationId={client.lastPosition()?.conversationId ?? null} />
  </OutlastProvider>,
);
