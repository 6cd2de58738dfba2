//! Region tokens: what lets one peer at one region, for a while (docs/security.md, "Region tokens").
//!
//! A token is made and judged by the engine that owns the region, with a secret of its own that ends with it; nobody else can
//! make or change one. Whoever has a token may use it, so it is as secret as a key. Its time is told by a clock that nobody can
//! set: a machine whose date is corrected neither ends a token early nor keeps it alive.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use zeroize::Zeroize;

use crate::prove::nonce;

/// Bytes of a token on the wire.
pub const TOKEN_LEN: usize = BODY_LEN + 32;
const BODY_LEN: usize = 48;
const VERSION: u8 = 1;
const PREFIX: &str = "mrt1";
const LABEL: &[u8] = b"moonrail region token v1";
/// Most tokens in one wallet; the oldest go first.
const MOST: usize = 4096;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// The region's bytes may be read.
    pub read: bool,
    /// The region's bytes may be written.
    pub write: bool,
}

/// What a token says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Epoch of the engine that owns the region.
    pub epoch: u64,
    /// The region, by the number of its registration.
    pub generation: u64,
    /// What may be done with it.
    pub rights: Rights,
    /// Until when, in milliseconds since its [`TokenIssuer`] was made. `u64::MAX`: as long as the region is registered.
    pub expires: u64,
}

impl Grant {
    /// Whether the grant has ended at `now`, of [`TokenIssuer::now`].
    #[must_use]
    pub fn expired(&self, now: u64) -> bool {
        now >= self.expires
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A token: bytes that only its issuer understands in full. `Debug` shows whom it is for, not the token; `Display` is the
/// token itself, as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; TOKEN_LEN]);

/// A text that is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a region token: it is {PREFIX} and {} hexadecimal digits", 2 * TOKEN_LEN)]
pub struct BadToken;

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// It was made by another engine or run, or changed.
    #[error("the token was not made by this run of the engine")]
    Foreign,
    /// Its time has passed.
    #[error("the token has expired")]
    Expired,
}

impl Token {
    /// From the wire.
    #[must_use]
    pub fn from_bytes(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// For the wire.
    #[must_use]
    pub fn bytes(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }

    /// What it says, true or not: only its issuer can tell.
    #[must_use]
    pub fn claims(&self) -> Grant {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&self.0[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let rights = Rights { read: self.0[1] & 1 != 0, write: self.0[1] & 2 != 0 };
        Grant { epoch: word(8), generation: word(16), rights, expires: word(24) }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.claims()).finish()
    }
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(BadToken)?.as_bytes();
        if digits.len() != 2 * TOKEN_LEN {
            return Err(BadToken);
        }
        let mut bytes = [0; TOKEN_LEN];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            let value = high.zip(low).map(|(high, low)| high << 4 | low).ok_or(BadToken)?;
            *byte = u8::try_from(value).map_err(|_| BadToken)?;
        }
        Ok(Self(bytes))
    }
}

/// Makes and judges the tokens of one run of an engine.
pub struct TokenIssuer {
    secret: [u8; 32],
    made: Instant,
}

impl TokenIssuer {
    /// With a secret from the kernel.
    ///
    /// # Errors
    /// The kernel gives none.
    pub fn new() -> io::Result<Self> {
        Ok(Self { secret: nonce()?, made: Instant::now() })
    }

    /// The time that grants are in: milliseconds since this was made.
    #[must_use]
    pub fn now(&self) -> u64 {
        millis(self.made.elapsed())
    }

    /// The end of a grant that begins now; `None`: it has none.
    #[must_use]
    pub fn end(&self, valid: Option<Duration>) -> u64 {
        valid.map_or(u64::MAX, |valid| self.now().saturating_add(millis(valid)))
    }

    /// A token for `grant`.
    #[must_use]
    pub fn issue(&self, grant: &Grant) -> Token {
        let mut bytes = [0; TOKEN_LEN];
        bytes[0] = VERSION;
        bytes[1] = u8::from(grant.rights.read) | u8::from(grant.rights.write) << 1;
        for (at, word) in [(8, grant.epoch), (16, grant.generation), (24, grant.expires)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let tag = self.tag(&bytes[..BODY_LEN]);
        bytes[BODY_LEN..].copy_from_slice(tag.as_bytes());
        Token(bytes)
    }

    /// What the token grants at `now`, of [`Self::now`].
    ///
    /// # Errors
    /// [`TokenFault`].
    pub fn judge(&self, token: &Token, now: u64) -> Result<Grant, TokenFault> {
        let (body, tag) = token.0.split_at(BODY_LEN);
        // The comparison takes the same time for every pair.
        if self.tag(body) != *tag || body[0] != VERSION {
            return Err(TokenFault::Foreign);
        }
        let grant = token.claims();
        if grant.expired(now) { Err(TokenFault::Expired) } else { Ok(grant) }
    }

    fn tag(&self, body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(LABEL).update(body);
        hasher.finalize()
    }
}

impl Drop for TokenIssuer {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl fmt::Debug for TokenIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenIssuer").finish_non_exhaustive()
    }
}

/// The tokens that an engine was given, for the regions of its peers. May be used from any thread.
#[derive(Debug, Default)]
pub struct Wallet {
    tokens: RwLock<Vec<Token>>,
    version: std::sync::atomic::AtomicU64,
}

impl Wallet {
    /// Keeps a token; one that is kept already is kept once.
    pub fn add(&self, token: Token) {
        let mut tokens = self.tokens.write();
        if tokens.contains(&token) {
            return;
        }
        if tokens.len() >= MOST {
            tokens.remove(0);
        }
        tokens.push(token);
        self.version.fetch_add(1, std::sync::atomic::Ordering::Release);
    }

    /// Changes when a token is added; 0 while there is none.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(std::sync::atomic::Ordering::Acquire)
    }

    /// The tokens for the engine run that has `epoch`.
    #[must_use]
    pub fn of(&self, epoch: u64) -> Vec<Token> {
        self.tokens.read().iter().filter(|token| token.claims().epoch == epoch).cloned().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grant() -> Grant {
        let rights = Rights { read: true, write: false };
        Grant { epoch: 7, generation: 9, rights, expires: 110 }
    }

    #[test]
    fn a_token_is_good_until_it_ends_and_only_where_it_was_made() {
        let (issuer, other) = (TokenIssuer::new().unwrap(), TokenIssuer::new().unwrap());
        let token: Token = issuer.issue(&grant()).to_string().parse().unwrap();
        assert_eq!(issuer.judge(&token, 109), Ok(grant()));
        assert_eq!(issuer.judge(&token, 110), Err(TokenFault::Expired));
        assert_eq!(other.judge(&token, 100), Err(TokenFault::Foreign));
        let lasting = issuer.issue(&Grant { expires: issuer.end(None), ..grant() });
        assert!(issuer.judge(&lasting, u64::MAX - 1).is_ok());
        let (before, end, after) = (issuer.now(), issuer.end(Some(Duration::from_secs(10))), issuer.now());
        assert!((before + 10_000..=after + 10_000).contains(&end));
    }

    #[test]
    fn a_token_hides_its_tag_in_debug_texts() {
        let issuer = TokenIssuer::new().unwrap();
        let token = issuer.issue(&grant());
        let wallet = Wallet::default();
        wallet.add(token.clone());
        let text = token.to_string();
        let shown = format!("{token:?} {issuer:?} {wallet:?}");
        assert!(!shown.contains(&text[text.len() - 16..]) && shown.contains("epoch: 7"), "{shown}");
    }

    #[test]
    fn a_wallet_finds_tokens_by_the_run_they_are_for() {
        let issuer = TokenIssuer::new().unwrap();
        let wallet = Wallet::default();
        assert_eq!(wallet.version(), 0);
        let (one, two) = (issuer.issue(&grant()), issuer.issue(&Grant { epoch: 8, ..grant() }));
        wallet.add(one.clone());
        wallet.add(two);
        wallet.add(one.clone());
        assert_eq!(wallet.version(), 2);
        assert_eq!(wallet.of(7), [one]);
        assert!(wallet.of(9).is_empty());
    }

    proptest! {
        #[test]
        fn a_changed_bit_makes_a_token_foreign(bit in 0..TOKEN_LEN * 8) {
            let issuer = TokenIssuer::new().unwrap();
            let mut bytes = *issuer.issue(&grant()).bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(issuer.judge(&Token::from_bytes(bytes), 100), Err(TokenFault::Foreign));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "(mrt1)?[0-9a-fA-Fé+ ]{0,200}") {
            if let Ok(token) = text.parse::<Token>() {
                prop_assert_eq!(token.to_string(), text.trim().to_lowercase());
            }
        }
    }
}
