import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import type { ModelChoice } from "./use-model";

export function ModelPicker({ choice }: { readonly choice: ModelChoice }): ReactNode {
  const { models, chosen, choose } = choice;
  const [first] = models;
  if (first === undefined) return <span className="model" />;
  if (models.length === 1) return <span className="model">{revealBidi(first)}</span>;
  const fallback = models.includes("default") ? "default" : first;
  return (
    <label className="model is-choice">
      <span className="visually-hidden">Model</span>
      <select value={chosen ?? fallback} onChange={(event) => choose(event.target.value)}>
        {models.map((model) => (
          <option key={model} value={model}>
            {revealBidi(model)}
          </option>
        ))}
      </select>
    </label>
  );
}
