//! Region tokens that a client has presented on its lane, and what they let it do.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use moonrail_access::{Grant, Token, TokenIssuer};
use moonrail_memory::{Hold, HoldSet, Want};
use moonrail_wire::rail::{AnswerStatus, Range, TOKEN_LEN};

use super::Shared;

// The wire and whoever makes tokens mean the same length.
const _: () = assert!(TOKEN_LEN == moonrail_access::token::TOKEN_LEN);

/// Grants kept for one lane; the oldest go first.
const MOST: usize = 4096;

/// The grants of one lane.
#[derive(Default)]
pub(super) struct Grants(Vec<Grant>);

impl Grants {
    /// Takes a token, or says that it is none of ours any more.
    pub(super) fn take(&mut self, shared: &Shared, bytes: &[u8], client: SocketAddr) -> AnswerStatus {
        let token = bytes.first_chunk().copied().map(Token::from_bytes);
        let Some((token, issuer)) = token.zip(shared.options.tokens.as_deref()) else {
            return AnswerStatus::Token;
        };
        match issuer.judge(&token, issuer.now()) {
            Ok(grant) => {
                if self.0.len() >= MOST {
                    self.0.remove(0);
                }
                self.0.push(grant);
                AnswerStatus::Ok
            }
            Err(fault) => {
                tell_refusal(shared, client, &fault);
                shared.counters.refused.fetch_add(1, Relaxed);
                AnswerStatus::Token
            }
        }
    }

    /// The first range that lies in a guarded region and that no grant covers now.
    pub(super) fn first_missing(&self, shared: &Shared, holds: &HoldSet, ranges: &[Range]) -> Option<usize> {
        let mut guarded = holds.iter().filter(|hold| hold.region().guarded).peekable();
        guarded.peek()?;
        let now = shared.options.tokens.as_deref().map_or(0, TokenIssuer::now);
        let missing = guarded.find(|hold| !self.covers(hold, now))?;
        ranges.iter().position(|range| missing.covers(range.addr, range.len))
    }

    fn covers(&self, hold: &Hold, now: u64) -> bool {
        self.0.iter().any(|grant| {
            let allowed = match hold.want() {
                Want::Read => grant.rights.read,
                Want::Write => grant.rights.write,
            };
            allowed && grant.generation == hold.region().generation && !grant.expired(now)
        })
    }
}

/// Tells of a refusal.
pub(super) fn tell_refusal(shared: &Shared, client: SocketAddr, why: &dyn Display) {
    shared.warn(format_args!("refused a request of {client}, which is told so: {why}"));
}
