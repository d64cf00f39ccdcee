//! A token's text: `<17:1731700000123456789> `, its index and when it was sent.
//!
//! JSON escapes none of these characters, so a marker looks the same inside every candidate's events,
//! and whoever reads the concatenated text can tell a gap from a repeat.

use std::io::Write;

/// Appends the text of one token.
pub(crate) fn write(out: &mut Vec<u8>, index: u64, sent_ns: u64) {
    write!(out, "<{index}:{sent_ns}> ").expect("writing to memory does not fail");
}

/// Reads what is between the brackets of a marker: `17:1731700000123456789`.
pub(crate) fn read(inside: &[u8]) -> Option<(u64, u64)> {
    let colon = memchr::memchr(b':', inside)?;
    Some((digits(&inside[..colon])?, digits(&inside[colon + 1..])?))
}

/// The index of the last whole marker in a text.
pub(crate) fn last_index(text: &str) -> Option<u64> {
    let end = text.rfind('>')?;
    let start = text[..end].rfind('<')?;
    Some(read(&text.as_bytes()[start + 1..end])?.0)
}

fn digits(bytes: &[u8]) -> Option<u64> {
    // 19 digits always fit; anything longer is not a marker.
    if bytes.is_empty() || bytes.len() > 19 || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(bytes.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        write(&mut out, 17, 1_731_700_000_123_456_789);
        assert_eq!(out, b"<17:1731700000123456789> ");
        assert_eq!(read(&out[1..out.len() - 2]), Some((17, 1_731_700_000_123_456_789)));
    }

    #[test]
    fn a_cut_marker_is_none() {
        assert_eq!(last_index("<3:44> <4:5"), Some(3));
        assert_eq!(last_index("no marker"), None);
        assert_eq!(read(b"3:"), None);
    }
}
