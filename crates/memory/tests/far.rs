//! Plain copies between managed memory and a mapping of another's, and what is no matter for them.
#![allow(clippy::unwrap_used)]
#![cfg(not(miri))]

use std::sync::Arc;
use std::time::Duration;

use moonrail_memory::far::{FarBlock, NotPlain, Piece, Stores};
use moonrail_memory::{Access, Backing, Hold, ManagedBuffers, RegionOptions, RegionTable, Want};

struct Side {
    table: Arc<RegionTable>,
    buffers: ManagedBuffers,
}

impl Side {
    fn new() -> Side {
        let table = Arc::new(RegionTable::new());
        Side { buffers: ManagedBuffers::new(Arc::clone(&table)), table }
    }

    fn hold(&self, addr: u64, want: Want) -> Hold {
        self.table.hold(addr, 1, want).unwrap()
    }
}

/// As another process would map the block.
fn far_of(backing: &Backing) -> FarBlock {
    let fd = backing.block.fd().try_clone_to_owned().unwrap();
    FarBlock::open(fd, backing.block.len()).unwrap()
}

fn contents(hold: &Hold) -> Vec<u8> {
    let mut bytes = vec![0; hold.region().len as usize];
    hold.copy_out(hold.region().addr, &mut bytes).unwrap();
    bytes
}

#[test]
fn bytes_arrive_and_their_neighbours_stay() {
    let (near, far) = (Side::new(), Side::new());
    for (len, stores) in [(5000, Stores::Cached), (3 << 20, Stores::Streaming)] {
        let (local, _) = near.buffers.allocate(len).unwrap();
        let (remote, _) = far.buffers.allocate(len).unwrap();
        let (ours, theirs) = (near.hold(local, Want::Write), far.hold(remote, Want::Write));
        let backing = theirs.region().backing.clone().unwrap();
        let block = far_of(&backing);
        ours.copy_in(local, &vec![7; len as usize]).unwrap();
        let piece = |len| Piece { local: local + 10, offset: backing.offset + 100, len };
        block.write(&ours, piece(len - 200), stores).unwrap();
        let bytes = contents(&theirs);
        assert!(bytes[100..len as usize - 100].iter().all(|&byte| byte == 7));
        assert!(bytes[..100].iter().chain(&bytes[len as usize - 100..]).all(|&byte| byte == 0));
        theirs.copy_in(remote, &vec![9; len as usize]).unwrap();
        block.read(&ours, piece(len - 200), stores).unwrap();
        let bytes = contents(&ours);
        assert!(bytes[10..len as usize - 190].iter().all(|&byte| byte == 9));
        assert!(bytes[..10].iter().chain(&bytes[len as usize - 190..]).all(|&byte| byte == 7));
    }
}

#[test]
fn what_is_not_known_to_be_mapped_is_refused() {
    let (near, far) = (Side::new(), Side::new());
    let private_table = Arc::new(RegionTable::new());
    let private = ManagedBuffers::private(Arc::clone(&private_table));
    let (local, _) = near.buffers.allocate(100).unwrap();
    let (elsewhere, _) = private.allocate(100).unwrap();
    let sealed = RegionOptions { access: Access::ReadOnly, ..RegionOptions::default() };
    let (constant, _) = far.buffers.allocate_with(100, sealed).unwrap();
    let (remote, _) = far.buffers.allocate(100).unwrap();
    let block = far_of(far.hold(remote, Want::Read).region().backing.as_ref().unwrap());
    let constant = far_of(far.hold(constant, Want::Read).region().backing.as_ref().unwrap());
    let (writing, reading) = (near.hold(local, Want::Write), near.hold(local, Want::Read));
    let unmapped = private_table.hold(elsewhere, 100, Want::Write).unwrap();
    assert_eq!(unmapped.region().backing, None);
    let piece = Piece { local, offset: 0, len: 100 };
    let stores = Stores::Cached;
    assert_eq!(block.write(&reading, piece, stores), Ok(()));
    assert_eq!(constant.read(&writing, piece, stores), Ok(()));
    for (refused, why) in [
        (block.read(&reading, piece, stores), "held to be read"),
        (constant.write(&reading, piece, stores), "sealed"),
        (block.write(&unmapped, Piece { local: elsewhere, ..piece }, stores), "private"),
        (block.write(&writing, Piece { len: 101, ..piece }, stores), "beyond the region"),
        (block.write(&writing, Piece { local: local - 1, ..piece }, stores), "below the region"),
        (block.write(&writing, Piece { offset: block.len() - 99, ..piece }, stores), "beyond the block"),
        (block.write(&writing, Piece { offset: u64::MAX, ..piece }, stores), "an offset that wraps"),
    ] {
        assert_eq!(refused, Err(NotPlain), "{why}");
    }
}

#[test]
fn a_region_keeps_its_block_mapped() {
    let (near, far) = (Side::new(), Side::new());
    let (remote, _) = far.buffers.allocate(4096).unwrap();
    let block = far_of(far.hold(remote, Want::Read).region().backing.as_ref().unwrap());
    let (local, range) = near.buffers.allocate(2 << 20).unwrap();
    // Its user's own registration of a part counts as much.
    near.table.unregister(local, Duration::ZERO).unwrap();
    near.table.register(range.part(4096 + 8, 100).unwrap(), RegionOptions::default()).unwrap();
    let hold = near.hold(local + 4096 + 8, Want::Read);
    assert_eq!(hold.region().backing.as_ref().unwrap().offset, 4096 + 8);
    near.buffers.free(local, Duration::ZERO).unwrap_err();
    let Side { table, buffers } = near;
    drop(buffers);
    let piece = Piece { local: local + 4096 + 8, offset: 0, len: 100 };
    assert_eq!(block.write(&hold, piece, Stores::Cached), Ok(()));
    drop((hold, table));
}
