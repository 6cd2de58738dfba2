//! What is right, and when: at each end of a transfer, behind each unregister, and when everything is over.

use std::time::{Duration, Instant};

use super::{NEXT_NUMBER, Run};
use crate::area::Look;
use crate::orders::{AREA, MARGIN, Order, Refusal};
use crate::plan::{Fault, Planned, Side};
use crate::rig::{LIMITS, Owner};

/// Bytes on both sides of a transfer's place that are looked at too.
const GUARD: usize = 4096;
/// Bytes that a node's resident memory may grow from when it came up: lists, stacks, and what malloc keeps.
const GROWTH_KIB: u64 = 48 << 10;

impl Run<'_> {
    fn planned(&self, id: u8) -> (Planned, bool) {
        if id < NEXT_NUMBER {
            let planned = self.plan.transfers[id as usize].clone();
            let write = planned.write;
            return (planned, write);
        }
        let nth = (id - NEXT_NUMBER) / 2;
        (self.plan.transfers[nth as usize].clone(), (id - NEXT_NUMBER) % 2 == 1)
    }

    /// A transfer has ended, just now.
    pub(super) fn judge_ended(&mut self, id: u8, outcome: Result<(), Refusal>) -> Result<(), String> {
        let (planned, write) = self.planned(id);
        let (_, to) = Self::direction(write);
        let (owner, managed) = (self.owners[to], planned.managed[to]);
        let what = format!("transfer {id} ({})", if write { "write" } else { "read" });
        match outcome {
            Ok(()) => {
                self.tally.succeeded += 1;
                if let Some(area) = self.rig.area(owner, self.plan.engine, managed) {
                    area.shadow.became(id);
                }
                self.look_at_places(&planned, to, false)
                    .map_err(|wrong| format!("{what} was reported as a success, and {wrong}"))
            }
            Err(refusal) => {
                self.note_failure(&refusal, id >= NEXT_NUMBER);
                let applied = refusal.applied;
                if let Some(area) = self.rig.area(owner, self.plan.engine, managed) {
                    area.shadow.became_in_part(id, applied);
                }
                if write {
                    self.settle_target()?;
                }
                self.look_at_places(&planned, to, true).map_err(|wrong| {
                    format!("{what} ended with {} ({applied} applied), and {wrong}", refusal.text)
                })?;
                let still = write && self.target_stands_still();
                if let Some(area) = self.rig.area(owner, self.plan.engine, managed) {
                    area.shadow.ended(id, still);
                }
                Ok(())
            }
        }
    }

    /// Until nothing that was begun before can change the target's memory any more.
    fn settle_target(&mut self) -> Result<(), String> {
        let (target, began) = (self.owners[1], Instant::now());
        loop {
            // It may have been stopped or killed by the last byte that passed.
            self.break_what_is_due()?;
            if let Owner::Node(seat) = target {
                if self.killed[seat] {
                    return Ok(());
                }
                if self.target_stands_still() {
                    if let Some(proxy) = &self.rig.proxy {
                        proxy.settle();
                    }
                    let stands = self.seat(seat)?.node.wait_stopped(Duration::from_secs(5));
                    return stands.map_err(|why| format!("node {seat} does not stand still: {why}"));
                }
                if self.is_starved(Side::Target) {
                    // It could not take the connection that asks.
                    self.seat(seat)?.node.lift_limits();
                }
            }
            let drain = self.killed[0] || self.cuts() || self.owners[0] == Owner::Client;
            match self.rig.settle(target, self.plan.engine, drain, Duration::from_millis(500)) {
                Err(why) if !self.dies(1) && began.elapsed() > Duration::from_secs(10) => return Err(why),
                Err(_) if !self.dies(1) => {}
                _ => return Ok(()),
            }
        }
    }

    fn is_starved(&self, side: Side) -> bool {
        self.plan.faults.iter().any(|fault| match fault {
            Fault::Files { side: of, .. } | Fault::Memory { side: of } => *of == side,
            _ => false,
        })
    }

    fn target_stands_still(&self) -> bool {
        self.stopped.is_some_and(|(stopped, ..)| Owner::Node(stopped) == self.owners[1])
    }

    /// Whether connections may have ended in order at the target that were lost at the initiator.
    fn cuts(&self) -> bool {
        self.plan.faults.iter().any(|fault| matches!(fault, Fault::Wire { what: crate::plan::Wire::Cut, .. }))
    }

    fn dies(&self, side: usize) -> bool {
        self.plan
            .faults
            .iter()
            .any(|fault| matches!(fault, Fault::Kill { side: who, .. } if *who as usize == side))
    }

    /// The bytes of a transfer's places on one side are what they must be; with `adopt`, they are certain from now on.
    fn look_at_places(&mut self, planned: &Planned, side: usize, adopt: bool) -> Result<(), String> {
        let (owner, engine, newest) = (self.owners[side], self.plan.engine, self.plan.schedule_number());
        let dies = self.dies(side);
        let Some(area) = self.rig.area(owner, engine, planned.managed[side]) else { return Ok(()) };
        for piece in &planned.pieces {
            let at = [piece.0, piece.1][side];
            let seen = if adopt {
                area.look_and_adopt(at, piece.2, newest)
            } else {
                area.look(at, piece.2, newest).map(drop)
            };
            match seen {
                Ok(()) => {}
                Err(Look::Gone) if dies => return Ok(()),
                Err(Look::Gone) => return Err(format!("the memory of {owner:?} is gone")),
                Err(Look::Wrong(wrong)) => return Err(format!("at {owner:?}, {wrong}")),
            }
        }
        Ok(())
    }

    /// An unregister (or another order) has been carried out.
    pub(super) fn judge_carried(
        &mut self,
        side: usize,
        outcome: Result<(), Refusal>,
        micros: u64,
    ) -> Result<(), String> {
        let Some(at) = self.unregistering.iter().position(|(of, _)| *of as usize == side) else {
            return Ok(());
        };
        let (of, _) = self.unregistering.remove(at);
        if self.plan.faults.iter().any(|fault| matches!(fault, Fault::Memory { side } if *side == of)) {
            // The limit may be lifted for another's sake before the order is carried out.
            let limited = self.seat(side)?.node.lacks_memory();
            return match outcome {
                Err(refusal) if refusal.code == "RESOURCE_LIMIT" => Ok(()),
                Ok(()) if !limited => Ok(()),
                other => Err(format!("64 MiB without memory for them: {other:?}")),
            };
        }
        let engine = self.plan.engine;
        match outcome {
            Ok(()) => {
                let places = self.own_places(side);
                let before = self.snapshot(side, &places);
                let wait = Duration::from_micros(self.plan.after % 3000);
                std::thread::sleep(wait);
                let after = self.snapshot(side, &places);
                if before.is_some() && after.is_some() && before != after {
                    return Err(format!(
                        "memory of node {side} changed behind an unregister that had returned"
                    ));
                }
            }
            Err(refusal) if refusal.code == "REGION_BUSY" => {
                let may_be = self.plan.faults.iter().any(|fault| matches!(fault, Fault::Stop { .. }))
                    || micros / 1000 >= LIMITS.unregister;
                if !may_be {
                    return Err(format!("unregister was refused after {micros} µs: {}", refusal.text));
                }
                // Whoever holds it ends first.
                self.go_on();
                while !self.pending.is_empty() {
                    self.hear(Duration::from_millis(1))?;
                    self.see_who_died()?;
                    if self.began.elapsed() > self.time_limit() {
                        return Err(format!("transfers {:?} do not end: {}", self.pending, refusal.text));
                    }
                }
            }
            Err(refusal) => return Err(format!("unregister failed: {}", refusal.text)),
        }
        self.register_again(side, engine)
    }

    fn register_again(&mut self, side: usize, engine: usize) -> Result<(), String> {
        if self.killed[side] {
            return Ok(());
        }
        let since = Instant::now();
        loop {
            self.seat(side)?.node.tell(&Order::Register { engine });
            let outcome = loop {
                match self.rig.seats[side].as_ref().and_then(|seat| seat.node.hear(Duration::from_millis(20)))
                {
                    Some(crate::orders::Said::Carried { outcome, .. }) => break outcome,
                    Some(crate::orders::Said::Done { transfer, outcome, .. }) => {
                        self.pending.retain(|id| *id != transfer);
                        self.judge_ended(transfer, outcome)?;
                    }
                    _ => {}
                }
                self.break_what_is_due()?;
                self.see_who_died()?;
                if self.killed[side] {
                    return Ok(());
                }
                if since.elapsed() > Duration::from_secs(10) {
                    return Err(format!("node {side} does not answer a register"));
                }
            };
            match outcome {
                Ok(()) => return Ok(()),
                Err(refusal) if since.elapsed() > Duration::from_secs(5) => {
                    return Err(format!("memory cannot be registered again: {}", refusal.text));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// The places in memory that the node brought.
    fn own_places(&self, side: usize) -> Vec<(usize, usize)> {
        let own = self.plan.transfers.iter().filter(|planned| !planned.managed[side]);
        own.flat_map(|planned| planned.pieces.iter().map(|piece| ([piece.0, piece.1][side], piece.2)))
            .collect()
    }

    fn snapshot(&mut self, side: usize, places: &[(usize, usize)]) -> Option<Vec<Vec<u8>>> {
        let area = self.rig.area(self.owners[side], self.plan.engine, false)?;
        places.iter().map(|&(at, len)| area.get(at, len).ok()).collect()
    }

    /// All transfers have ended or will never; faults are still in force.
    pub(super) fn after_the_end(&mut self) -> Result<(), String> {
        if self.target_stands_still() {
            self.tally.stood_still = true;
            // What a stopped target has in its socket buffers must not land when it goes on.
            self.settle_target()?;
            self.adopt_places()?;
        }
        Ok(())
    }

    fn adopt_places(&mut self) -> Result<(), String> {
        for planned in &self.plan.transfers {
            for side in [0, 1] {
                self.look_at_places(planned, side, true)?;
            }
        }
        Ok(())
    }

    fn forget_what_may_come(&mut self) {
        for side in [0, 1] {
            for managed in [false, true] {
                if let Some(area) = self.rig.area(self.owners[side], self.plan.engine, managed) {
                    self.tally.late |= area.shadow.settle();
                }
            }
        }
    }

    /// Everything is mended: every byte of every place and round it is right, and stays as it is.
    pub(super) fn judge_all(&mut self) -> Result<(), String> {
        self.settle_target()?;
        self.adopt_places()?;
        self.forget_what_may_come();
        // Now and then all of the memory.
        let everything = self.rig.schedules % 16 == 15;
        let newest = self.plan.schedule_number().max(1 << 23);
        for side in [0, 1] {
            for managed in [false, true] {
                let owner = self.owners[side];
                let places: Vec<(usize, usize)> = if everything {
                    vec![(0, AREA as usize)]
                } else {
                    let of_area =
                        self.plan.transfers.iter().filter(|planned| planned.managed[side] == managed);
                    let pieces = of_area.flat_map(|planned| &planned.pieces);
                    pieces.map(|piece| ([piece.0, piece.1][side], piece.2)).map(with_guard).collect()
                };
                let Some(area) = self.rig.area(owner, self.plan.engine, managed) else { continue };
                for (at, len) in places {
                    match area.look(at, len, newest) {
                        Ok(_) => {}
                        Err(Look::Gone) => return Err(format!("the memory of {owner:?} is gone")),
                        Err(Look::Wrong(wrong)) => {
                            return Err(format!("when all was over, at {owner:?}, {wrong}"));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// No node has more of anything than its peers can account for.
    pub(super) fn look_for_leaks(&mut self) -> Result<(), String> {
        for (nth, seat) in self.rig.seats.iter().enumerate() {
            let Some(seat) = seat else { continue };
            let facts = seat.node.facts().map_err(|error| format!("node {nth} has ended: {error}"))?;
            let base = seat.node.base;
            // Lanes out and in, for each engine and for strangers, links and mappings of the same-host path, handshakes.
            let most = base.files + 48;
            if facts.files > most {
                return Err(format!(
                    "node {nth} has {} descriptors open, {} at the start",
                    facts.files, base.files
                ));
            }
            // Background threads stay for a while.
            if facts.threads > base.threads + 40 {
                return Err(format!(
                    "node {nth} has {} threads, {} at the start",
                    facts.threads, base.threads
                ));
            }
            if facts.resident_kib > base.resident_kib + GROWTH_KIB {
                return Err(format!(
                    "node {nth} has grown from {} to {} KiB",
                    base.resident_kib, facts.resident_kib
                ));
            }
        }
        Ok(())
    }
}

fn with_guard((at, len): (usize, usize)) -> (usize, usize) {
    let from = at.saturating_sub(GUARD);
    let to = (at + len + GUARD).min(AREA as usize);
    (from, to - from)
}

const _: () = assert!(GUARD as u64 <= MARGIN);
