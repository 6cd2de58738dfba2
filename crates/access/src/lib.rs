//! Who may connect (docs/security.md).
//!
//! Owns: shared keys and where they come from ([`Keyring`]), the exchange by which both ends of a connection prove one
//! ([`prove`]), the tags on handshake messages ([`Session`]), TLS identities and what they trust ([`tls`]), region tokens
//! ([`token`]), and what is allowed without ([`Allow`]). The exchange and TLS do no I/O: they take and give bytes, so the
//! data port, the handshake port and the tests run the same code.
//!
//! Must not know: sockets, registered memory, what is done on an admitted connection. No `Debug` or error text of this
//! crate shows a secret.
#![forbid(unsafe_code)]

mod allow;
mod control;
mod error;
mod files;
mod key;
mod keyring;
pub mod prove;
mod session;
mod telling;
pub mod tls;
pub mod token;

pub use allow::{Allow, UnknownName};
pub use control::AccessControl;
pub use error::{Denied, KeyError};
pub use key::{Key, Keys};
pub use keyring::{KeySource, Keyring};
pub use prove::{Binding, Challenge, Initiator, Offer, Step, Target, nonce};
pub use session::{Session, Tag};
pub use telling::Telling;
pub use tls::{Tls, TlsDenied, TlsFault, TlsSource};
pub use token::{BadToken, Grant, Rights, Token, TokenFault, TokenIssuer, Wallet};
