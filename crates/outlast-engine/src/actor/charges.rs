//! Charges the accounts of a conversation's user, and of the API key that asked, with what was recorded.

use outlast_core::{Entry, Event, Generation};

use super::Actor;
use crate::ledger::Use;

impl Actor {
    /// Called when events other than streamed text have been recorded, which include every end. The text in between
    /// is charged with them.
    pub(super) fn charge(&mut self, entries: &[Entry]) {
        let Some(state) = &self.state else { return };
        let now = self.shared.clock.now();
        let stored = state.stored_bytes();
        let grown = signed(stored).saturating_sub(signed(self.charged));
        self.charged = stored;
        self.shared.ledger.charge(&Use { user: &state.user, key: None, tokens: 0, bytes: grown }, now);
        for entry in entries {
            let Some(run) = entry.generation.as_ref().and_then(|id| state.generation(id)) else { continue };
            let (tokens, key) = (tokens(run, &entry.event), run.brief.api_key_id.as_deref());
            self.shared.ledger.charge(&Use { user: &state.user, key, tokens, bytes: 0 }, now);
        }
    }

    /// Called when the conversation has been deleted.
    pub(super) fn refund(&mut self) {
        let Some(state) = &self.state else { return };
        let bytes = -signed(self.charged);
        let used = Use { user: &state.user, key: None, tokens: 0, bytes };
        self.shared.ledger.charge(&used, self.shared.clock.now());
        self.charged = 0;
    }
}

/// As the upstream reported. If it reported none, the end counts a token for every piece of the answer: that is how
/// upstreams stream. A worker calls models by its own account.
fn tokens(run: &Generation, event: &Event) -> u64 {
    if run.brief.is_for_worker() {
        return 0;
    }
    if let Event::Usage { input_tokens, output_tokens } = event {
        return input_tokens.saturating_add(*output_tokens);
    }
    let reported = run.counters.input_tokens.saturating_add(run.counters.output_tokens);
    if event.is_end() && reported == 0 { run.counters.chunks_received } else { 0 }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
