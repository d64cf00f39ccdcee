//! Incomplete tool calls. Their arguments arrive in pieces, and those of several calls may alternate. Each call is
//! passed on when it is complete.

use outlast_core::{DEPTH_MAX, Piece, depth};
use serde_json::{Map, Value};

use super::failures::{too_long, transient};
use super::reading::Out;

/// The maximum total size of incomplete calls. It is more than a model writes, and the event of a call stays below
/// 1 MiB even if every character must be escaped.
pub(in super::super) const CALL_BYTES_MAX: usize = 512 * 1024;
/// The maximum number of tool calls in one answer, so that an endless list does not fill the log.
pub(in super::super) const CALLS_MAX: usize = 128;
/// The maximum length of an id, which becomes part of paths and of every later request.
const ID_BYTES_MAX: usize = 256;

#[derive(Default)]
pub(in super::super) struct Calls {
    open: Vec<Open>,
    begun: usize,
    bytes: usize,
}

/// A call that may be incomplete.
struct Open {
    index: Option<u64>,
    /// Empty until the upstream sends it.
    id: String,
    name: String,
    arguments: String,
    /// Its number among the answer's calls, from 1.
    number: usize,
}

/// A piece of a call, as OpenAI-compatible upstreams send it. Any field may be missing or wrong.
pub(in super::super) struct Delta<'a> {
    pub(in super::super) index: Option<u64>,
    pub(in super::super) id: &'a str,
    pub(in super::super) name: &'a str,
    pub(in super::super) arguments: &'a str,
}

impl Calls {
    /// Adds a piece: the beginning of a call, or more of one.
    pub(in super::super) fn add(&mut self, delta: &Delta<'_>, out: &mut Out) {
        let place = match self.place(delta) {
            Some(place) => place,
            // White space after a call that was passed on is ignored.
            None if delta.name.is_empty() && delta.arguments.trim().is_empty() => return,
            None => {
                // Appending text to a complete object cannot make it another valid object.
                self.hand_on_whole(out);
                self.begin(delta.index, delta.id, delta.name, out);
                self.open.len().saturating_sub(1)
            }
        };
        // Missing if the limit on calls was reached.
        let Some(call) = self.open.get_mut(place) else { return };
        for (known, said) in [(&mut call.id, delta.id), (&mut call.name, delta.name)] {
            if known.is_empty() {
                said.clone_into(known);
                self.bytes += said.len();
            }
        }
        self.more_at(place, delta.arguments, out);
    }

    pub(in super::super) fn begin(&mut self, index: Option<u64>, id: &str, name: &str, out: &mut Out) {
        self.begun += 1;
        if self.begun > CALLS_MAX {
            return out.fail(too_long(&format!("the answer has more than {CALLS_MAX} tool calls")));
        }
        if !self.has_room(id.len() + name.len(), out) {
            return;
        }
        let (id, name) = (id.to_owned(), name.to_owned());
        self.open.push(Open { index, id, name, arguments: String::new(), number: self.begun });
    }

    /// Adds arguments to the call with this index, if there is one.
    pub(in super::super) fn more(&mut self, index: Option<u64>, arguments: &str, out: &mut Out) {
        if let Some(place) = self.open.iter().rposition(|call| call.index == index) {
            self.more_at(place, arguments, out);
        }
    }

    /// Passes on the call with this index, if there is one.
    pub(in super::super) fn complete(&mut self, index: Option<u64>, out: &mut Out) {
        if let Some(place) = self.open.iter().rposition(|call| call.index == index) {
            self.hand_on(place, out);
        }
    }

    pub(in super::super) fn complete_all(&mut self, out: &mut Out) {
        while !self.open.is_empty() {
            self.hand_on(0, out);
        }
    }

    /// The call that a piece belongs to. Some upstreams omit the index, and some give every call the same. Then a new
    /// id, or a new name where there are no ids, means that another call begins.
    fn place(&self, delta: &Delta<'_>) -> Option<usize> {
        let place = match delta.index {
            Some(_) => self.open.iter().rposition(|call| call.index == delta.index)?,
            None => self.open.len().checked_sub(1)?,
        };
        let call = &self.open[place];
        let other_id = !delta.id.is_empty() && !call.id.is_empty() && call.id != delta.id;
        let other_name = delta.index.is_none() && delta.id.is_empty() && !delta.name.is_empty();
        let other = (other_id && (delta.index.is_none() || !delta.name.is_empty())) || other_name;
        (!other).then_some(place)
    }

    fn more_at(&mut self, place: usize, arguments: &str, out: &mut Out) {
        if self.has_room(arguments.len(), out) {
            self.open[place].arguments.push_str(arguments);
        }
    }

    /// Counts the bytes that arrived. Too many fail the attempt.
    fn has_room(&mut self, added: usize, out: &mut Out) -> bool {
        self.bytes = self.bytes.saturating_add(added);
        if added > 0 {
            out.heard();
        }
        if self.bytes > CALL_BYTES_MAX {
            out.fail(too_long(&format!("a tool call has more than {CALL_BYTES_MAX} bytes")));
        }
        self.bytes <= CALL_BYTES_MAX
    }

    fn hand_on_whole(&mut self, out: &mut Out) {
        let whole = |call: &Open| matches!(serde_json::from_str(&call.arguments), Ok(Value::Object(_)));
        while self.open.first().is_some_and(whole) {
            self.hand_on(0, out);
        }
    }

    fn hand_on(&mut self, place: usize, out: &mut Out) {
        let Open { id, name, arguments, number, .. } = self.open.remove(place);
        self.bytes = self.bytes.saturating_sub(id.len() + name.len() + arguments.len());
        if name.is_empty() {
            return out.fail(transient("upstream sent a tool call without a name"));
        }
        let id = if is_usable(&id) { id } else { format!("call_{number}") };
        let bytes = arguments.len();
        out.call(Piece::ToolCall { id, name, input: input(arguments) }, bytes);
    }
}

/// Whether an id can be used in a path. Other ids are replaced, because an id only links a call to its result.
fn is_usable(id: &str) -> bool {
    let dots = id == "." || id == "..";
    !id.is_empty() && id.len() <= ID_BYTES_MAX && !dots && !id.contains(char::is_control)
}

/// The arguments as an object, or as the literal text if they are not an object or are nested too deep.
fn input(arguments: String) -> Value {
    if arguments.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match serde_json::from_str(&arguments) {
        Ok(object @ Value::Object(_)) if depth(&object) <= DEPTH_MAX => object,
        _ => Value::String(arguments),
    }
}
