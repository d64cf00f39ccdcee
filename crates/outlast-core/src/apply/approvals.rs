//! Questions to a person, and their decisions.

use crate::{Approval, Decided, Event, Generation};

impl Generation {
    pub(super) fn apply_to_approvals(&mut self, event: &Event) {
        match event {
            Event::ApprovalRequested { tool_use_id, tool_name, tool_input, hash } => {
                self.progress.approvals.push(Approval {
                    tool_use_id: tool_use_id.clone(),
                    tool_name: tool_name.clone(),
                    tool_input: tool_input.clone(),
                    hash: hash.clone(),
                    attempt: self.progress.attempt,
                    decided: None,
                });
            }
            Event::ApprovalResolved { tool_use_id, decision, by, reason, always, pattern } => {
                let mut asked = self.progress.approvals.iter_mut();
                if let Some(approval) = asked.find(|approval| approval.tool_use_id == *tool_use_id) {
                    let (decision, by, always) = (*decision, by.clone(), *always);
                    let (reason, pattern) = (reason.clone(), pattern.clone());
                    approval.decided = Some(Decided { decision, by, reason, always, pattern });
                    if !approval.hash.is_empty() {
                        approval.tool_input = serde_json::Value::Null;
                    }
                }
            }
            _ => {}
        }
    }
}
