//! The exchange by which both ends of a connection prove a shared key (docs/security.md, "On the wire").
//!
//! Two state machines that take and give bytes; nonces are given to them, so that tests may choose. They must not know
//! sockets. Whoever uses them reads exactly the bytes they ask for: what follows belongs to the connection's protocol.

use std::fmt;
use std::io;

use moonrail_wire::auth::{FEATURE_KEY, NONCE_LEN, Opening, PROOF_LEN, Port};
use moonrail_wire::rail::{HELLO_LEN, Hello, VERSION, WELCOME_LEN, Welcome, WelcomeStatus};
use zeroize::Zeroize;

use crate::error::Denied;
use crate::key::{Key, Keys};
use crate::session::Session;

/// What everything after the hello is read in.
pub const BLOCK_LEN: usize = WELCOME_LEN;
/// A welcome and what follows it.
pub const DOUBLE_LEN: usize = 2 * BLOCK_LEN;

const LABEL: &[u8] = b"moonrail prove v1";

/// What ties an exchange to the TLS connection that it runs in: 32 bytes that only its two ends can know. `None` in clear.
pub type Binding = Option<[u8; 32]>;

/// A nonce from the kernel.
///
/// # Errors
/// The kernel gives none (a sandbox hides the call).
pub fn nonce() -> io::Result<[u8; NONCE_LEN]> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

/// The secret of one connection, on both sides. Wiped when dropped.
struct Shared([u8; 32]);

impl Shared {
    fn derive(key: &Key, hello: &[u8; HELLO_LEN], challenge: &[u8; DOUBLE_LEN], binding: Binding) -> Self {
        let mut hasher = key.hasher();
        hasher.update(LABEL).update(hello).update(challenge);
        if let Some(binding) = &binding {
            hasher.update(binding);
        }
        let shared = Self(*hasher.finalize().as_bytes());
        hasher.zeroize();
        shared
    }

    fn initiators_proof(&self) -> blake3::Hash {
        blake3::keyed_hash(&self.0, b"initiator")
    }

    fn targets_proof(&self, verdict: &[u8; BLOCK_LEN]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"target").update(verdict);
        hasher.finalize()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// What an initiator does next.
#[derive(Debug)]
pub enum Step {
    /// Receive another block.
    Receive,
    /// Send these bytes, then receive another block.
    Send([u8; PROOF_LEN]),
    /// Both sides have proven the key.
    Done(Admitted),
}

/// What an initiator has at the end.
#[derive(Debug)]
pub struct Admitted {
    /// The verdict's welcome.
    pub welcome: Welcome,
    /// For tags on messages.
    pub session: Session,
}

/// The side that opens the connection: send [`Initiator::hello`], then give it one block after another.
pub struct Initiator {
    key: Key,
    hello: [u8; HELLO_LEN],
    challenge: [u8; DOUBLE_LEN],
    verdict: [u8; BLOCK_LEN],
    place: Place,
    shared: Option<Shared>,
    binding: Binding,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Welcome,
    Nonce,
    Verdict,
    Proof,
    Over,
}

impl Initiator {
    /// An initiator that calls `port` of the run of the target that has `epoch` (0 for the handshake port), with the
    /// first of `keys`, and wants `features` beside the key's. `nonce` must never be used twice.
    #[must_use]
    pub fn new(port: Port, keys: &Keys, epoch: u64, features: u32, nonce: [u8; NONCE_LEN]) -> Self {
        let key = keys.first().clone();
        let mut hello = Hello { version: VERSION, features: features | FEATURE_KEY, target_epoch: epoch }
            .encode_for(port);
        Opening { nonce, key_id: key.id() }.put(&mut hello);
        Self {
            key,
            hello,
            challenge: [0; DOUBLE_LEN],
            verdict: [0; BLOCK_LEN],
            place: Place::Welcome,
            shared: None,
            binding: None,
        }
    }

    /// The same initiator, tied to the TLS connection that it runs in.
    #[must_use]
    pub fn bound(self, binding: Binding) -> Self {
        Self { binding, ..self }
    }

    /// The first bytes of the connection.
    #[must_use]
    pub fn hello(&self) -> &[u8; HELLO_LEN] {
        &self.hello
    }

    /// Takes the next block.
    ///
    /// # Errors
    /// [`Denied`]: the connection is to be closed.
    pub fn take(&mut self, block: &[u8; BLOCK_LEN]) -> Result<Step, Denied> {
        let step = self.take_in_order(block);
        if step.is_err() {
            self.place = Place::Over;
        }
        step
    }

    fn take_in_order(&mut self, block: &[u8; BLOCK_LEN]) -> Result<Step, Denied> {
        match self.place {
            Place::Welcome => {
                let welcome = Welcome::decode(block).map_err(|_| Denied::Malformed)?;
                match welcome.status {
                    WelcomeStatus::Prove if welcome.features & FEATURE_KEY != 0 => {}
                    WelcomeStatus::Prove | WelcomeStatus::Open => return Err(Denied::NotAsked),
                    refused => return Err(refusal(refused)),
                }
                self.challenge[..BLOCK_LEN].copy_from_slice(block);
                self.place = Place::Nonce;
                Ok(Step::Receive)
            }
            Place::Nonce => {
                self.challenge[BLOCK_LEN..].copy_from_slice(block);
                let shared = Shared::derive(&self.key, &self.hello, &self.challenge, self.binding);
                let proof = *shared.initiators_proof().as_bytes();
                self.shared = Some(shared);
                self.place = Place::Verdict;
                Ok(Step::Send(proof))
            }
            Place::Verdict => {
                let welcome = Welcome::decode(block).map_err(|_| Denied::Malformed)?;
                if welcome.status != WelcomeStatus::Open {
                    return Err(refusal(welcome.status));
                }
                self.verdict = *block;
                self.place = Place::Proof;
                Ok(Step::Receive)
            }
            Place::Proof => {
                let shared = self.shared.take().ok_or(Denied::Malformed)?;
                // The comparison takes the same time for every pair.
                if shared.targets_proof(&self.verdict) != *block {
                    return Err(Denied::Impostor);
                }
                self.place = Place::Over;
                let welcome = Welcome::decode(&self.verdict).map_err(|_| Denied::Malformed)?;
                Ok(Step::Done(Admitted { welcome, session: Session::derive(&shared.0) }))
            }
            Place::Over => Err(Denied::Malformed),
        }
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator").field("key", &self.key).finish_non_exhaustive()
    }
}

fn refusal(status: WelcomeStatus) -> Denied {
    match status {
        WelcomeStatus::Epoch => Denied::Epoch,
        WelcomeStatus::Version => Denied::Version,
        WelcomeStatus::NotAdmitted => Denied::KeyRefused,
        // We brought one: whoever says so did not look.
        WelcomeStatus::KeyRequired => Denied::NotAsked,
        WelcomeStatus::TlsRequired => Denied::TlsRequired,
        WelcomeStatus::Open | WelcomeStatus::Prove | WelcomeStatus::Other(_) => Denied::Malformed,
    }
}

/// What a target says of itself in its welcomes.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// The port that the hello came to.
    pub port: Port,
    /// This run's epoch; 0 on the handshake port.
    pub epoch: u64,
    /// Feature bits known here, beside the key's.
    pub features: u32,
    /// Largest payload of one frame, in bytes; 0 on the handshake port.
    pub max_payload: u64,
    /// The TLS connection that the hello came over.
    pub binding: Binding,
}

impl Offer {
    /// A welcome of this target.
    #[must_use]
    pub fn welcome(&self, status: WelcomeStatus, features: u32) -> [u8; WELCOME_LEN] {
        let Self { epoch, max_payload, .. } = *self;
        Welcome { version: VERSION, status, features, epoch, max_payload }.encode()
    }
}

/// A hello that was answered with a challenge.
#[derive(Debug)]
pub struct Challenge {
    /// Feature bits that will be in force.
    pub features: u32,
    /// To be sent.
    pub bytes: [u8; DOUBLE_LEN],
    /// Takes the initiator's proof.
    pub target: Target,
}

/// The side that is called, once it has challenged.
pub struct Target {
    offer: Offer,
    features: u32,
    shared: Shared,
}

impl Target {
    /// Takes a hello with the feature bit key and challenges. `nonce` must never be used twice.
    ///
    /// # Errors
    /// Why not, with the welcome to be sent before the connection is closed (`None`: close it without).
    pub fn challenge(
        offer: Offer,
        keys: &Keys,
        hello: &[u8; HELLO_LEN],
        nonce: [u8; NONCE_LEN],
    ) -> Result<Challenge, (Denied, Option<[u8; WELCOME_LEN]>)> {
        let refuse = |why, status| Err((why, Some(offer.welcome(status, 0))));
        let Ok(said) = Hello::decode_for(offer.port, hello) else { return Err((Denied::Malformed, None)) };
        if said.version != VERSION {
            return refuse(Denied::Version, WelcomeStatus::Version);
        }
        if said.target_epoch != offer.epoch {
            return refuse(Denied::Epoch, WelcomeStatus::Epoch);
        }
        if said.features & FEATURE_KEY == 0 {
            return refuse(Denied::KeyRequired, WelcomeStatus::KeyRequired);
        }
        let Some(key) = keys.find(Opening::of(hello).key_id) else {
            return refuse(Denied::UnknownKey, WelcomeStatus::NotAdmitted);
        };
        let features = said.features & offer.features | FEATURE_KEY;
        let mut bytes = [0; DOUBLE_LEN];
        bytes[..BLOCK_LEN].copy_from_slice(&offer.welcome(WelcomeStatus::Prove, features));
        bytes[BLOCK_LEN..].copy_from_slice(&nonce);
        let shared = Shared::derive(key, hello, &bytes, offer.binding);
        Ok(Challenge { features, bytes, target: Self { offer, features, shared } })
    }

    /// Judges the initiator's proof: the verdict to be sent, and what the connection goes on with.
    ///
    /// # Errors
    /// [`Denied::WrongProof`], with the welcome to be sent before the connection is closed.
    pub fn judge(
        self,
        proof: &[u8; PROOF_LEN],
    ) -> Result<([u8; DOUBLE_LEN], Session), (Denied, [u8; WELCOME_LEN])> {
        // The comparison takes the same time for every pair.
        if self.shared.initiators_proof() != *proof {
            return Err((Denied::WrongProof, self.offer.welcome(WelcomeStatus::NotAdmitted, 0)));
        }
        let welcome = self.offer.welcome(WelcomeStatus::Open, self.features);
        let mut verdict = [0; DOUBLE_LEN];
        verdict[..BLOCK_LEN].copy_from_slice(&welcome);
        verdict[BLOCK_LEN..].copy_from_slice(self.shared.targets_proof(&welcome).as_bytes());
        Ok((verdict, Session::derive(&self.shared.0)))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("offer", &self.offer).finish_non_exhaustive()
    }
}
