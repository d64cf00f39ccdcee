//! What people decide about tool calls.

use super::live;
use crate::entries::Entries;
use crate::rounds::{denial, deny};
use crate::{
    Always, Approval, Conversation, Decide, Decided, Decision, Event, Generation, Refusal, Rules, ToolRule,
};

pub(super) fn decide_approval(
    state: &Conversation,
    decide: Decide,
    rules: &Rules,
    entries: &mut Entries,
) -> Result<(), Refusal> {
    let Decide { generation, tool_use_id, hash, decided } = decide;
    let generation = live(state, &generation)?;
    let mut approvals = generation.progress.approvals.iter();
    let Some(asked) = approvals.find(|approval| approval.tool_use_id == tool_use_id) else {
        return Err(match generation.questions().find(|question| question.id == tool_use_id) {
            Some(question) => Refusal::AskedByChild(Box::new(question.clone())),
            None => Refusal::NotAsked { tool_use_id },
        });
    };
    if hash.is_some_and(|hash| hash != asked.hash) {
        return Err(Refusal::ApprovalChanged { tool_use_id });
    }
    if let Some(earlier) = &asked.decided {
        return Err(Refusal::AlreadyDecided(earlier.clone())); // the first decision counts
    }
    resolve(generation, asked, decided.clone(), entries);
    for other in answered_too(generation, asked, &decided, rules) {
        let decided = Decided { always: false, pattern: None, ..decided.clone() };
        resolve(generation, other, decided, entries);
    }
    Ok(())
}

/// Records a decision. A call of an agent that is denied ends with it, and the model reads why.
fn resolve(generation: &Generation, asked: &Approval, decided: Decided, entries: &mut Entries) {
    let tool_use_id = asked.tool_use_id.clone();
    let Decided { decision, by, reason, always, pattern } = decided;
    let why = denial(reason.as_deref());
    entries.of(generation, Event::ApprovalResolved { tool_use_id, decision, by, reason, always, pattern });
    let called = generation.open_calls().find(|(id, _)| *id == asked.tool_use_id);
    if let Some((id, message)) = called.filter(|_| generation.is_agent() && decision == Decision::Deny) {
        deny(generation, id, message, &why, entries);
    }
}

/// A decision that holds for all such calls answers the questions about others that are open already.
fn answered_too<'a>(
    generation: &'a Generation,
    asked: &'a Approval,
    decided: &Decided,
    rules: &Rules,
) -> Vec<&'a Approval> {
    let rule = rules.tool(&asked.tool_name).filter(|_| decided.always && generation.is_agent());
    let Some(rule) = rule else { return Vec::new() };
    let always = Always {
        tool: asked.tool_name.clone(),
        decision: decided.decision,
        pattern: decided.pattern.clone(),
    };
    let is_answered = |other: &&Approval| {
        other.tool_use_id != asked.tool_use_id
            && other.tool_name == asked.tool_name
            && covers(rule, &always, other)
    };
    generation.pending_approvals().filter(is_answered).collect()
}

fn covers(rule: &ToolRule, always: &Always, other: &Approval) -> bool {
    rule.covers(always, &other.tool_input)
}
