//! The first bytes of a lane: hello and welcome, the proof of a key, and region tokens.

use std::sync::atomic::Ordering::Relaxed;

use moonrail_access::Target;
use moonrail_wire::rail::{
    Answer, AnswerKind, AnswerStatus, CHECKSUM, Hello, Present, VERSION, WELCOME_LEN, Welcome, WelcomeStatus,
};

use super::{MAX_PAYLOAD, Place, RailLane};
use crate::server::reception::Admission;
use crate::server::{Shared, reception};

impl RailLane {
    pub(super) fn welcome(&mut self, shared: &Shared) {
        self.place = Place::Head(0);
        if shared.options.only_tls() && !self.stream.is_sealed() {
            shared.options.refuse(self.peer, &"the caller speaks in clear, and only TLS is spoken here");
            self.turn_away(
                shared,
                Some(reception::welcome(shared.options.epoch, WelcomeStatus::TlsRequired)),
            );
            return;
        }
        if let Some(access) = &shared.options.access
            && (shared.options.locked().is_some() || reception::brings_key(&self.hello))
        {
            let offer = (shared.options.epoch, shared.options.features());
            match reception::challenge(access, offer, &self.hello, self.peer, &self.stream) {
                Ok(challenge) => {
                    self.features = challenge.features;
                    self.admission = Some(Admission::of(&self.hello, self.last_progress));
                    self.answers.push_double(challenge.bytes);
                    self.place = Place::Proof(0, challenge.target);
                }
                Err(told) => self.turn_away(shared, told),
            }
            return;
        }
        let epoch = shared.options.epoch;
        let Ok(hello) = Hello::decode(&self.hello) else {
            self.finishing = true;
            return;
        };
        let status = if hello.version != VERSION {
            WelcomeStatus::Version
        } else if hello.target_epoch != epoch {
            WelcomeStatus::Epoch
        } else {
            WelcomeStatus::Open
        };
        self.finishing = status != WelcomeStatus::Open;
        self.features =
            hello.features & reception::features(shared.options.features(), self.stream.is_sealed());
        self.checks = self.features & CHECKSUM != 0 && status == WelcomeStatus::Open;
        let features = self.features;
        let welcome = Welcome { version: VERSION, status, features, epoch, max_payload: MAX_PAYLOAD };
        self.answers.push_welcome(welcome.encode());
    }

    /// The proof is where the hello was.
    pub(super) fn judge(&mut self, shared: &Shared, target: Target) {
        let Some(access) = &shared.options.access else { return };
        match reception::judge(access, target, &self.hello, self.peer) {
            Ok(verdict) => {
                self.answers.push_double(verdict);
                self.checks = self.features & CHECKSUM != 0;
            }
            Err(told) => self.turn_away(shared, told),
        }
    }

    fn turn_away(&mut self, shared: &Shared, told: Option<[u8; WELCOME_LEN]>) {
        shared.counters.refused.fetch_add(1, Relaxed);
        self.finishing = true;
        if let Some(welcome) = told {
            self.answers.push_welcome(welcome);
        }
    }

    pub(super) fn take_token(&mut self, shared: &Shared, present: Present) {
        self.place = Place::Head(0);
        let status = if present.epoch == shared.options.epoch {
            self.grants.take(shared, &self.table, self.peer)
        } else {
            AnswerStatus::Epoch
        };
        let kind = AnswerKind::Present;
        self.answers.push(Answer { kind, status, id: present.id, index: 0, payload: 0 });
    }
}
