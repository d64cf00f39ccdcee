/** The arguments of a call: the text that matters as it is, the rest as JSON. */

import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Revealed } from "../markdown/revealed";
import { pretty } from "../shell/pretty";
import { subjectOf } from "./tool-call";

export interface ToolArgumentsProps {
  readonly name: string;
  readonly input: unknown;
  /** Whether a person is asked about it: then every invisible character is shown. */
  readonly isQuestion?: boolean;
}

/** One field after another, as text. Arguments that are no object are shown as JSON. */
export function ToolArguments({ name, input, isQuestion = false }: ToolArgumentsProps): ReactNode {
  const show = (text: string): ReactNode => (isQuestion ? <Revealed text={text} /> : revealBidi(text));
  const subject = subjectOf(name, input);
  if (subject === null || typeof input !== "object" || input === null)
    return (
      <pre tabIndex={0} aria-label="Tool input">
        {show(pretty(input))}
      </pre>
    );
  const others = Object.entries(input).filter(([key]) => key !== subject.argument);
  return (
    <dl className="tool-arguments">
      {[[subject.argument, subject.text] as const, ...others].map(([key, value]) => (
        <div key={key}>
          <dt>{show(key)}</dt>
          <dd>
            <pre tabIndex={0} aria-label={`Argument ${key}`}>
              {show(pretty(value))}
            </pre>
          </dd>
        </div>
      ))}
    </dl>
  );
}
