import type { Generation } from "@outlast/client";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { duration } from "../shell/duration";
import type { Timeline } from "./timeline";

export interface FiguresProps {
  readonly generation: Generation | null;
  readonly timeline: Timeline;
}

export function Figures({ generation, timeline }: FiguresProps): ReactNode {
  const { firstWordMs, attempts, retractions, inputTokens, outputTokens, characters } = timeline;
  const figures: readonly (readonly [string, string])[] = [
    ["Model", generation === null ? "…" : revealBidi(generation.model)],
    ["Duration", duration(timeline.end - timeline.start)],
    ["First word", firstWordMs === null ? "none" : duration(firstWordMs)],
    timeline.rounds > 0 ? ["Rounds", String(timeline.rounds)] : ["Attempts", String(attempts)],
    ["Retracted", String(retractions)],
    ["Characters", characters.toLocaleString("en")],
    ["Input tokens", tokens(inputTokens, generation?.inputTokens)],
    ["Output tokens", tokens(outputTokens, generation?.outputTokens)],
  ];
  return (
    <dl className="figures">
      {figures.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Some models do not report them. */
function tokens(seen: number, known = 0): string {
  const count = Math.max(seen, known);
  return count === 0 ? "unknown" : count.toLocaleString("en");
}
