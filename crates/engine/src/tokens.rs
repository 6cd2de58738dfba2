//! Region tokens: made for peers, and taken from them.

use std::time::Duration;

use moonrail_access::{Grant, Rights, Token};
use moonrail_memory::Want;
use moonrail_transport::{Code, Error, Retry, Stage};

use crate::engine::Engine;
use crate::errors;

impl Engine {
    /// A token that lets whoever has it at the region that `addr` lies in, one registered as
    /// [`guarded`](moonrail_memory::RegionOptions::guarded): as `rights` say, for `valid` from now (`None`: as long as
    /// the region is registered). It is a secret; hand it to the peer that is to use it with [`Engine::present`].
    ///
    /// # Errors
    /// [`Code::AddressNotRegistered`]; [`Code::InvalidArgument`] when the region needs no token, or `rights` has none.
    pub fn token(&self, addr: u64, rights: Rights, valid: Option<Duration>) -> Result<String, Error> {
        let inner = self.usable()?;
        let hold = inner.regions.hold(addr, 1, Want::Read).map_err(|error| {
            Error::new(Code::AddressNotRegistered, Stage::Register, Retry::AfterFix, error.to_string())
        })?;
        if !hold.region().guarded {
            let message = format!("the region at {addr:#x} was not registered as one that needs a token");
            return Err(errors::arguments(Code::InvalidArgument, message));
        }
        if !rights.read && !rights.write {
            return Err(errors::arguments(Code::InvalidArgument, "a token that allows nothing"));
        }
        let grant = Grant {
            epoch: inner.own.epoch,
            generation: hold.region().generation,
            rights,
            expires: inner.issuer.end(valid),
        };
        Ok(inner.issuer.issue(&grant).to_string())
    }

    /// Keeps a token that a peer has made: calls of that peer's region succeed from now on, as far as it goes. It says
    /// itself which peer it is for.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for a text that is no token. Whether it is good is only known to the peer.
    pub fn present(&self, token: &str) -> Result<(), Error> {
        let inner = self.usable()?;
        let token: Token =
            token.parse().map_err(|error| errors::arguments(Code::InvalidArgument, format!("{error}")))?;
        inner.wallet.add(token);
        Ok(())
    }
}
