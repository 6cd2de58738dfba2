//! How a schedule's faults happen, and how they are undone.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Run;
use crate::orders::Order;
use crate::plan::{Byte, Fault, Side, TCP, Wire};
use crate::proxy::{Port, Rule, Then};
use crate::rig::Owner;

/// A network fault that has come into force is mended after this long.
pub(super) const HEALED_AFTER: Duration = Duration::from_millis(1200);

impl Run<'_> {
    /// What has to be in place before the transfers start.
    pub(super) fn arm(&mut self) {
        let faults = std::mem::take(&mut self.faults);
        let (armed, timed): (Vec<Fault>, Vec<Fault>) =
            faults.into_iter().partition(|fault| self.arm_one(fault));
        self.faults = timed;
        self.tally.fired = !armed.is_empty();
    }

    /// Whether nothing is left to be done for this fault but to undo it.
    fn arm_one(&mut self, fault: &Fault) -> bool {
        match *fault {
            Fault::Wire { at, what } => {
                let then = match what {
                    Wire::Reset => Then::Reset,
                    Wire::Cut => Then::Cut,
                    Wire::Stall(time) => Then::Stall(time),
                    Wire::Trickle(interval) => Then::Trickle(interval),
                    Wire::Refuse => {
                        let gate = self.rig.gate(self.owners[1], self.plan.engine, port(at));
                        if let Some(proxy) = &self.rig.proxy {
                            proxy.refuse(gate);
                        }
                        return true;
                    }
                };
                self.set_rule(at, then);
                true
            }
            Fault::Files { side, more } => {
                self.with_node(side, |node| node.limit_files(more));
                true
            }
            Fault::Memory { side } => {
                let engine = self.plan.engine;
                self.with_node(side, |node| {
                    node.limit_memory(384 << 10);
                    node.tell(&Order::Allocate { engine, len: 64 << 20 });
                });
                self.unregistering.push((side, Instant::now()));
                true
            }
            Fault::Kill { side, at: Some(at) } => {
                if let Some(signal) = self.signaller(side) {
                    self.set_rule(at, Then::Do(Box::new(move || signal(Signal::KILL))));
                }
                false
            }
            Fault::Stop { side, at: Some(at), .. } => {
                if let Some(signal) = self.signaller(side) {
                    self.set_rule(at, Then::Do(Box::new(move || signal(Signal::STOP))));
                }
                false
            }
            Fault::Unregister { at: Some(at), .. } => {
                self.set_rule(at, Then::Do(Box::new(|| {})));
                false
            }
            Fault::Down { .. }
            | Fault::Kill { at: None, .. }
            | Fault::Stop { at: None, .. }
            | Fault::Unregister { at: None, .. } => false,
        }
    }

    /// Lets those faults and cancels happen whose time has come.
    pub(super) fn break_what_is_due(&mut self) -> Result<(), String> {
        let (now, after) = (self.began.elapsed(), Duration::from_micros(self.plan.after));
        let fired = self.rig.proxy.as_ref().is_some_and(crate::proxy::Proxy::fired);
        let due = |fault: &mut Fault| match fault {
            Fault::Kill { at, .. } | Fault::Stop { at, .. } | Fault::Unregister { at, .. } => {
                if at.is_some() { fired } else { now >= after }
            }
            _ => now >= after,
        };
        let due: Vec<Fault> = self.faults.extract_if(.., due).collect();
        for fault in due {
            self.tally.fired = true;
            match fault {
                Fault::Kill { side, .. } => {
                    if let Some(signal) = self.signaller(side) {
                        signal(Signal::KILL);
                        self.killed[side as usize] = true;
                    }
                }
                Fault::Stop { side, time, .. } => {
                    if let Some(signal) = self.signaller(side) {
                        signal(Signal::STOP);
                        self.stopped = Some((side as usize, Instant::now(), time));
                    }
                }
                Fault::Unregister { side, .. } => {
                    let engine = self.plan.engine;
                    self.unregistering.push((side, Instant::now()));
                    self.with_node(side, |node| node.tell(&Order::Unregister { engine }));
                }
                Fault::Down { time } => {
                    if let Some(link) = &self.rig.link {
                        link.set(false)?;
                        self.down = Some((Instant::now(), time));
                    }
                }
                _ => {}
            }
        }
        for (transfer, after) in std::mem::take(&mut self.cancels) {
            if now.as_micros() as u64 + 1000 < after {
                self.cancels.push((transfer, after));
            } else if self.owners[0] == Owner::Node(0) && !self.killed[0] {
                let after = after.saturating_sub(now.as_micros() as u64);
                self.seat(0)?.node.tell(&Order::Cancel { transfer, after });
            }
        }
        self.mend_what_is_over()
    }

    fn mend_what_is_over(&mut self) -> Result<(), String> {
        let over =
            |time: &Option<Duration>, since: &Instant| time.is_some_and(|time| since.elapsed() >= time);
        if let Some((_, since, time)) = &self.stopped
            && over(time, since)
        {
            self.go_on();
        }
        if self.plan.faults.iter().any(|fault| matches!(fault, Fault::Wire { .. }))
            && self.began.elapsed() > HEALED_AFTER
            && let Some(proxy) = &self.rig.proxy
        {
            proxy.lift();
        }
        if self.down.is_some_and(|(since, time)| since.elapsed() >= time) {
            self.link_up()?;
        }
        Ok(())
    }

    fn link_up(&mut self) -> Result<(), String> {
        match (self.down.take(), &self.rig.link) {
            (Some(_), Some(link)) => link.set(true),
            _ => Ok(()),
        }
    }

    /// A stopped process is to go on after some time, and not yet.
    pub(super) fn is_stopped_for_a_while(&self) -> bool {
        matches!(&self.stopped, Some((_, _, Some(_))))
    }

    pub(super) fn go_on(&mut self) {
        if let Some((seat, ..)) = self.stopped.take()
            && let Some(seat) = &self.rig.seats[seat]
        {
            seat.node.signaller()(Signal::CONT);
        }
    }

    /// Undoes every fault.
    pub(super) fn mend(&mut self) -> Result<(), String> {
        if let Some(proxy) = &self.rig.proxy {
            proxy.lift();
        }
        // The byte may have come in the last moment; if it has not, what waits for it will not happen.
        self.faults.retain(|fault| !matches!(fault, Fault::Unregister { .. }));
        self.break_what_is_due()?;
        self.faults.clear();
        self.link_up()?;
        self.go_on();
        for seat in 0..2 {
            if self.killed[seat] {
                self.rig.end(seat);
                self.killed[seat] = false;
            } else if let Some(seat) = &mut self.rig.seats[seat] {
                seat.node.lift_limits();
            }
        }
        self.rig.ensure_nodes()
    }

    fn set_rule(&self, at: Byte, then: Then) {
        let gate = self.rig.gate(self.owners[1], self.plan.engine, port(at));
        if let Some(proxy) = &self.rig.proxy {
            proxy.set(Rule { gate, inwards: at.inwards, byte: at.byte, then });
        }
    }

    fn signaller(&self, side: Side) -> Option<Box<dyn Fn(Signal) + Send>> {
        let Owner::Node(seat) = self.owners[side as usize] else { return None };
        self.rig.seats[seat]
            .as_ref()
            .map(|seat| Box::new(seat.node.signaller()) as Box<dyn Fn(Signal) + Send>)
    }

    fn with_node(&mut self, side: Side, then: impl FnOnce(&mut crate::process::Node)) {
        if let Owner::Node(seat) = self.owners[side as usize]
            && let Some(seat) = &mut self.rig.seats[seat]
        {
            then(&mut seat.node);
        }
    }
}

fn port(at: Byte) -> Port {
    if at.data_port { Port::Data } else { Port::Handshake }
}

const _: () = assert!(TCP == 0);
