//! One pass over the bytes before parsing: finds the end of the first value, blanks comments, bounds the nesting.
//!
//! Does not check syntax: whatever it lets through, the parser judges.

use std::borrow::Cow;

use super::{JsonError, MAX_DEPTH};

/// The first JSON value in `body`, without comments, as UTF-8.
pub(super) fn first_value(body: &[u8]) -> Result<Cow<'_, str>, JsonError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let mut scan = Scan { bytes: Cow::Borrowed(body), at: 0 };
    let end = scan.run()?;
    Ok(match scan.bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(&bytes[..end]),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes[..end]).into_owned()),
    })
}

struct Scan<'a> {
    /// Copied only if there is a comment to blank.
    bytes: Cow<'a, [u8]>,
    at: usize,
}

impl Scan<'_> {
    /// Returns the end of the first value; the end of input if that value is not an object or an array.
    fn run(&mut self) -> Result<usize, JsonError> {
        let mut depth = 0_usize;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => self.skip_string(),
                b'/' => self.blank_comment(),
                b'{' | b'[' => {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(JsonError::TooDeep);
                    }
                    self.at += 1;
                }
                b'}' | b']' => {
                    self.at += 1;
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Ok(self.at);
                    }
                }
                _ => self.at += 1,
            }
        }
        Ok(self.bytes.len())
    }

    /// From an opening quote to behind the closing one, or to the end of input.
    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.at += 1;
                    return;
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at = self.bytes.len();
    }

    /// Overwrites a comment with spaces. A `/` that starts none is left for the parser to refuse.
    fn blank_comment(&mut self) {
        let rest = &self.bytes[self.at..];
        let len = if rest.starts_with(b"//") {
            rest.iter().position(|&b| b == b'\n' || b == b'\r')
        } else if rest.starts_with(b"/*") {
            rest[2..].windows(2).position(|pair| pair == b"*/").map(|position| position + 4)
        } else {
            Some(0)
        };
        let end = self.at + len.unwrap_or(rest.len());
        if end == self.at {
            self.at += 1;
            return;
        }
        self.bytes.to_mut()[self.at..end].fill(b' ');
        self.at = end;
    }
}
