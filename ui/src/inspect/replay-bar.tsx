import type { ReactNode } from "react";
import { duration } from "../shell/duration";
import { Icon } from "../shell/icon";
import { SPEEDS } from "./replay";
import type { Replay } from "./replay";

export function ReplayBar({ replay }: { readonly replay: Replay }): ReactNode {
  const { at, length, isPlaying, speed } = replay;
  return (
    <div className="replay" role="group" aria-label="Replay">
      <button type="button" className="button" onClick={replay.toggle} disabled={length === 0}>
        <Icon name={isPlaying ? "pause" : "play"} />
        {isPlaying ? "Pause" : "Play"}
      </button>
      <input
        type="range"
        aria-label="Replay position"
        aria-valuetext={duration(at)}
        min={0}
        max={Math.max(1, Math.round(length))}
        value={Math.min(at, length)}
        onChange={(event) => replay.seek(Number(event.target.value))}
      />
      <span className="replay-time">{duration(at)}</span>
      <span className="speeds" role="group" aria-label="Speed">
        {SPEEDS.map((one) => (
          <button
            key={one}
            type="button"
            className="chip"
            aria-pressed={one === speed}
            onClick={() => replay.setSpeed(one)}
          >
            {one}×
          </button>
        ))}
      </span>
    </div>
  );
}
