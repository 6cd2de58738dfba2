//! A line as its writer meant it: without colours, without the wrapping of a log in JSON.

use std::borrow::Cow;

use memchr::memchr;

const ESCAPE: u8 = 0x1b;

/// `bytes` without ANSI escape sequences; they stand in the middle of words where a tool marked what it had found.
pub(crate) fn without_colours(bytes: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr(ESCAPE, bytes) else { return Cow::Borrowed(bytes) };
    let mut plain = Vec::with_capacity(bytes.len());
    plain.extend_from_slice(&bytes[..first]);
    let mut rest = &bytes[first..];
    while !rest.is_empty() {
        let skipped = sequence(rest);
        rest = &rest[skipped..];
        let next = memchr(ESCAPE, rest).unwrap_or(rest.len());
        plain.extend_from_slice(&rest[..next]);
        rest = &rest[next..];
    }
    Cow::Owned(plain)
}

/// Length of the escape sequence that `bytes` begin with. A newline always ends it.
fn sequence(bytes: &[u8]) -> usize {
    let body = match bytes.get(1) {
        Some(b'[') => {
            // Parameters, then one final byte.
            let length = bytes[2..].iter().take_while(|byte| matches!(byte, 0x20..=0x3f)).count();
            2 + length + usize::from(bytes.get(2 + length).is_some_and(|byte| (0x40..=0x7e).contains(byte)))
        }
        Some(b']') => {
            // An operating-system command: up to BEL, or to the escape that begins its terminator.
            let ends = |byte: &&u8| !matches!(**byte, 0x07 | ESCAPE | b'\n');
            let length = bytes[2..].iter().take_while(ends).count();
            2 + length + usize::from(bytes.get(2 + length) == Some(&0x07))
        }
        Some(b'\n') | None => 1,
        Some(_) => 2,
    };
    body.min(bytes.len())
}

/// The text of a line; what is no UTF-8 is replaced.
pub(crate) fn text(line: &[u8]) -> Cow<'_, str> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = String::from_utf8_lossy(line);
    if text.trim_start().starts_with('{') && text.contains('\\') {
        return Cow::Owned(unescaped(&text));
    }
    text
}

/// JSON's escapes undone wherever they stand; good enough to match on, whatever the object looks like.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(kind) = rest.chars().next() else { break };
        rest = &rest[kind.len_utf8()..];
        match kind {
            'n' | 'r' | 't' => plain.push(' '),
            'u' => {
                let code = rest.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
                match code.and_then(char::from_u32) {
                    Some(c) => {
                        plain.push(if c.is_control() { ' ' } else { c });
                        rest = &rest[4..];
                    }
                    None => plain.push('u'),
                }
            }
            other => plain.push(other),
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_wherever_they_stand() {
        assert_eq!(&*without_colours(b"plain"), b"plain");
        assert_eq!(&*without_colours(b"\x1b[0;36m(pid=3)\x1b[0;0m ERROR"), b"(pid=3) ERROR");
        assert_eq!(&*without_colours(b"\x1b[01;31m\x1b[KMoon\x1b[m\x1b[Kcake's"), b"Mooncake's");
        assert_eq!(&*without_colours(b"\x1b]0;title\x07text\x1b"), b"text");
        assert_eq!(&*without_colours(b"cut \x1b[31\nnext"), b"cut \nnext");
    }

    #[test]
    fn lines_in_json_read_as_they_were_written() {
        assert_eq!(text(b"a \\ b\r"), "a \\ b");
        assert_eq!(
            text(br#"{"log":"x \u003e= 0.3.4 \"q\" it\u0027s\n","stream":"stderr"}"#),
            r#"{"log":"x >= 0.3.4 "q" it's ","stream":"stderr"}"#
        );
        assert_eq!(text(b"{\"log\":\"cut \\u00"), "{\"log\":\"cut u00");
        assert_eq!(text(&[b'a', 0xff, b'b']), "a\u{fffd}b");
    }
}
