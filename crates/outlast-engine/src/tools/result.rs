//! What a model is told about an execution that has ended.

use bytes::Bytes;
use outlast_core::{ExecutionId, SandboxId};

use crate::sandbox::{EXECUTIONS_INSIDE, Limit, Offsets, Outcome, Output, SandboxError, Sandboxes, Span};

/// How much output goes to the model and into the log. The sandbox keeps all of it in a file.
pub const INLINE_MAX: usize = 256 * 1024;
/// The part of that which stderr may take.
const STDERR_MAX: usize = INLINE_MAX / 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    pub text: String,
    pub exit_code: Option<i32>,
    pub is_error: bool,
}

/// Reads the output of an execution that has ended.
pub async fn collect(
    sandboxes: &dyn Sandboxes,
    id: &SandboxId,
    execution: &ExecutionId,
    ended: (Outcome, Offsets),
) -> Result<ToolResult, SandboxError> {
    let (outcome, written) = ended;
    let stderr = inline(sandboxes, id, execution, (Output::Stderr, written.stderr, STDERR_MAX)).await?;
    let rest = INLINE_MAX - STDERR_MAX;
    let stdout = inline(sandboxes, id, execution, (Output::Stdout, written.stdout, rest)).await?;
    Ok(result(outcome, stdout, &stderr))
}

fn result(outcome: Outcome, stdout: String, stderr: &str) -> ToolResult {
    let mut text = stdout;
    let mut add = |part: &str| {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(part);
    };
    if !stderr.is_empty() {
        add(stderr);
    }
    let (note, exit_code) = match outcome {
        Outcome::Exited { code: 0 } => (None, Some(0)),
        Outcome::Exited { code } => (Some(format!("[exit code {code}]")), Some(code)),
        Outcome::Stopped => (Some("[stopped]".to_owned()), None),
        Outcome::TimedOut => (Some("[stopped: timeout]".to_owned()), None),
        Outcome::OverLimit(Limit::Disk) => (Some("[stopped: disk limit]".to_owned()), None),
        Outcome::OverLimit(Limit::Output) => (Some("[stopped: output limit]".to_owned()), None),
        Outcome::Lost => (Some("[outcome unknown: the machine went down while this ran]".to_owned()), None),
    };
    if let Some(note) = &note {
        add(note);
    }
    ToolResult { text, exit_code, is_error: note.is_some() }
}

/// The beginning and the end of an output, with a line in between if something is left out.
async fn inline(
    sandboxes: &dyn Sandboxes,
    id: &SandboxId,
    execution: &ExecutionId,
    (output, size, max): (Output, u64, usize),
) -> Result<String, SandboxError> {
    let read = async |offset, max| {
        sandboxes.read(id, &Span { execution: execution.clone(), output, offset, max }).await
    };
    if size <= max as u64 {
        return Ok(String::from_utf8_lossy(&read(0, max).await?).into_owned());
    }
    let half = max / 2;
    let head = whole_characters(read(0, half).await?);
    let tail = whole_characters(read(size - half as u64, half).await?);
    let left_out = size - head.len() as u64 - tail.len() as u64;
    let name = match output {
        Output::Stdout => "stdout",
        Output::Stderr => "stderr",
    };
    Ok(format!(
        "{}\n[{left_out} bytes left out; everything is in {EXECUTIONS_INSIDE}/{execution}/{name}]\n{}",
        String::from_utf8_lossy(&head),
        String::from_utf8_lossy(&tail),
    ))
}

/// Removes the fragments of characters that a cut left at either end.
fn whole_characters(bytes: Bytes) -> Bytes {
    let continues = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let start = bytes.iter().take(3).take_while(|byte| continues(byte)).count();
    let end = match str::from_utf8(&bytes[start..]) {
        Err(error) if error.error_len().is_none() => start + error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    };
    bytes.slice(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_whole_characters() {
        let text = "€uro €".as_bytes();
        assert_eq!(whole_characters(Bytes::copy_from_slice(&text[1..text.len() - 1])), "uro ");
        assert_eq!(whole_characters(Bytes::from_static(b"plain")), "plain");
    }

    #[test]
    fn a_result_says_how_the_program_ended() {
        let ok = result(Outcome::Exited { code: 0 }, "out\n".to_owned(), "");
        assert_eq!((ok.text.as_str(), ok.exit_code, ok.is_error), ("out\n", Some(0), false));
        let failed = result(Outcome::Exited { code: 2 }, "out".to_owned(), "oops\n");
        assert_eq!(
            (failed.text.as_str(), failed.exit_code, failed.is_error),
            ("out\noops\n[exit code 2]", Some(2), true)
        );
        let late = result(Outcome::TimedOut, String::new(), "");
        assert_eq!((late.text.as_str(), late.exit_code, late.is_error), ("[stopped: timeout]", None, true));
    }
}
