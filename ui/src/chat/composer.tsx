/** The message field, with the buttons to send, queue, interrupt and stop. */

import { useCapabilities } from "@outlast/client/react";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useRef } from "react";
import type { FormEvent, KeyboardEvent, ReactNode } from "react";
import { sentence } from "../shell/sentence";
import { Icon } from "../shell/icon";
import { isTouch } from "../shell/is-touch";
import { ModelPicker } from "./model-picker";
import { quietly } from "./quietly";
import { useDraft } from "./use-draft";
import type { ModelChoice } from "./use-model";
import type { Send } from "./use-sending";

export interface ComposerProps {
  readonly chat: UseConversation;
  readonly model: ModelChoice;
  readonly onSend: Send;
}

export function Composer({ chat, model, onSend }: ComposerProps): ReactNode {
  const [text, setText] = useDraft(chat.id);
  const field = useRef<HTMLTextAreaElement>(null);
  const isBusy = chat.isGenerating || chat.view?.activeRun != null;
  const hasText = text.trim() !== "";
  useEffect(() => {
    if (!isTouch) field.current?.focus({ preventScroll: true });
  }, []);
  useEffect(() => fit(field.current), [text]);

  const send = (whenBusy: "queue" | "interrupt"): void => {
    if (!hasText) return;
    setText("");
    onSend(text.trim(), whenBusy);
    field.current?.focus();
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    send("queue");
  };
  const press = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing || isTouch) return;
    event.preventDefault();
    send(isBusy && (event.ctrlKey || event.metaKey) ? "interrupt" : "queue");
  };
  return (
    <form className="composer" onSubmit={submit}>
      <Trouble chat={chat} />
      <div className="composer-box">
        <textarea
          ref={field}
          rows={1}
          value={text}
          placeholder={isBusy ? "Write your next message" : "Write a message"}
          aria-label="Message"
          onChange={(event) => setText(event.target.value)}
          onKeyDown={press}
        />
        <div className="composer-bar">
          <ModelPicker choice={model} />
          <span className="composer-buttons">
            {isBusy && hasText && <BusyButtons onInterrupt={() => send("interrupt")} />}
            {isBusy ? <StopButton chat={chat} /> : <SendButton isDisabled={!hasText} />}
          </span>
        </div>
      </div>
      <ForegroundNote />
    </form>
  );
}

function BusyButtons({ onInterrupt }: { readonly onInterrupt: () => void }): ReactNode {
  return (
    <>
      <button type="submit" className="button" title="Send after this answer (Enter)">
        <Icon name="queue" />
        Queue
      </button>
      <button
        type="button"
        className="button"
        title="Stop this answer and send now (Ctrl Enter)"
        onClick={onInterrupt}
      >
        <Icon name="interrupt" />
        Interrupt
      </button>
    </>
  );
}

function StopButton({ chat }: { readonly chat: UseConversation }): ReactNode {
  return (
    <button
      type="button"
      className="round-button is-stop"
      aria-label="Stop"
      title={chat.isGenerating ? "Stop (Esc)" : "Stop"}
      onClick={() => quietly(chat.cancel())}
    >
      <Icon name="stop" />
    </button>
  );
}

function SendButton({ isDisabled }: { readonly isDisabled: boolean }): ReactNode {
  return (
    <button
      type="submit"
      className="round-button"
      aria-label="Send"
      title="Send (Enter)"
      disabled={isDisabled}
    >
      <Icon name="send" />
    </button>
  );
}

/** Why the last action failed. A message that failed says so itself. */
function Trouble({ chat }: { readonly chat: UseConversation }): ReactNode {
  const { error, pending } = chat;
  if (error === null || pending.some((message) => message.error === error)) return null;
  return (
    <p className="trouble" role="alert">
      {error.code === "approval_changed"
        ? "Your decision was not applied: the request changed before it arrived. Review the new request."
        : `That did not work. ${sentence(error.detail)}`}
    </p>
  );
}

/** On a server without background mode, closing the page ends the answer. */
function ForegroundNote(): ReactNode {
  if (useCapabilities()?.background !== false) return null;
  return (
    <p className="composer-note">
      This server does not finish answers in the background. Keep this page open until an answer is complete.
    </p>
  );
}

/** For browsers that cannot size the field to its text by themselves. */
function fit(field: HTMLTextAreaElement | null): void {
  if (field === null || CSS.supports("field-sizing", "content")) return;
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}
