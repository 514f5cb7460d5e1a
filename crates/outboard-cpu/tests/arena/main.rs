//! Mappings that their owner cuts into allocations: what may be used of them, by which device, and
//! by other processes.

#[path = "../device/fixture.rs"]
#[expect(dead_code, reason = "the other tests of the device use the rest")]
mod fixture;

use std::process::Command;
use std::sync::Once;

use outboard_abi::CUresult;
use outboard_cpu::Cpu;
use outboard_front::backend::{
    Backend, CheckpointStep, DeviceId, DevicePtr, MemoryKind, PartChange, Result, Sharing,
    StreamId, VirtualMemory,
};
use parking_lot::{Mutex, MutexGuard};

use crate::fixture::{Context, fresh};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 2 * MIB;
const INVALID: Result<()> = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
const ILLEGAL_ADDRESS: Result<()> = Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
const LEGACY: StreamId = StreamId::LEGACY;
/// Tells a process which token to open.
const TOKEN: &str = "OUTBOARD_TEST_TOKEN";

/// Two devices, for one test at a time: one of them suspends the process.
fn alone() -> MutexGuard<'static, ()> {
    static ONCE: Once = Once::new();
    static LOCK: Mutex<()> = Mutex::new(());
    ONCE.call_once(|| {
        for (name, value) in [("OUTBOARD_CPU_DEVICES", "2"), ("OUTBOARD_CPU_CHECKPOINT", "1")] {
            // SAFETY: the device and the tests read the environment by the standard library alone,
            // which takes a lock for it.
            unsafe { std::env::set_var(name, value) };
        }
    });
    LOCK.lock()
}

/// A mapping of physical memory, of which the second half is mapped.
struct Block {
    cpu: &'static Cpu,
    reserved: u64,
    address: u64,
}

impl Block {
    /// On a device that may use it.
    fn new(device: u32) -> Block {
        let (cpu, memory, home) = (Cpu::get(), fresh(), DeviceId::new(device));
        let reserved = cpu.vmm_reserve(home, 3 * BLOCK, 0, DevicePtr(0)).unwrap().0;
        let block = Block { cpu, reserved, address: reserved + BLOCK };
        let kind = MemoryKind { device: home, handle_types: 0, compression: 0, usage: 0 };
        cpu.vmm_create(memory, 2 * BLOCK, kind).unwrap();
        cpu.vmm_map(home, DevicePtr(block.address), BLOCK, BLOCK, memory).unwrap();
        cpu.vmm_release(home, memory).unwrap();
        block.allow(device, true);
        block
    }

    fn divided(device: u32) -> Block {
        let block = Block::new(device);
        block.divide().unwrap();
        block
    }

    fn allow(&self, device: u32, now: bool) {
        let access = [(DeviceId::new(device), if now { 3 } else { 0 })];
        self.cpu.vmm_set_access(DeviceId::new(0), DevicePtr(self.address), BLOCK, &access).unwrap();
    }

    fn change(&self, offset: u64, bytes: u64, change: PartChange) -> Result<()> {
        self.cpu.vmm_part(DevicePtr(self.address.wrapping_add(offset)), bytes, change)
    }

    fn divide(&self) -> Result<()> {
        self.change(0, BLOCK, PartChange::Divide)
    }

    fn open(&self, offset: u64, bytes: u64) -> Result<()> {
        self.change(offset, bytes, PartChange::Open)
    }

    fn close(&self, offset: u64, bytes: u64) -> Result<()> {
        self.change(offset, bytes, PartChange::Close)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.cpu.vmm_unmap(DeviceId::new(0), DevicePtr(self.address), BLOCK).unwrap();
        self.cpu.vmm_free(DeviceId::new(0), DevicePtr(self.reserved), 3 * BLOCK).unwrap();
    }
}

/// What becomes of a kernel that stores to an address.
fn poke(device: u32, address: u64) -> Result<()> {
    let ctx = Context::on(device);
    ctx.launch(&ctx.kernel("poke"), 1, &[address], LEGACY)?;
    ctx.synchronize()
}

#[test]
fn a_part_is_used_as_an_allocation_and_the_rest_is_not() {
    let _alone = alone();
    for device in [0, 1] {
        let (ctx, block) = (Context::on(device), Block::divided(device));
        let at = block.address;
        assert_eq!(
            (ctx.try_write(at, &[1], LEGACY), poke(device, at)),
            (INVALID, ILLEGAL_ADDRESS),
            "nothing is open"
        );
        block.open(0, 700).unwrap();
        block.open(1024, 256).unwrap();
        block.open(1280, 4).unwrap();
        let words: Vec<u32> = (0..175).collect();
        ctx.write(at, &words, LEGACY);
        assert_eq!(ctx.read(at, 175, LEGACY), words);
        assert_eq!(
            (ctx.try_write(at, &[0; 176], LEGACY), ctx.try_write(at + 700, &[1], LEGACY)),
            (INVALID, INVALID)
        );
        assert_eq!(
            ctx.try_write(at + 1024, &[0; 65], LEGACY),
            INVALID,
            "not even into the next one"
        );
        assert_eq!((poke(device, at + 696), poke(device, at + 768)), (Ok(()), ILLEGAL_ADDRESS));
        assert_eq!(ctx.read(at + 696, 1, LEGACY), [77]);
        block.close(1024, 256).unwrap();
        assert_eq!(
            (ctx.try_write(at + 1024, &[1], LEGACY), poke(device, at + 1024)),
            (INVALID, ILLEGAL_ADDRESS)
        );
        assert_eq!(
            (poke(device, at + 1280), poke(device, at)),
            (Ok(()), Ok(())),
            "its neighbours stay"
        );
    }
}

#[test]
fn changes_that_make_no_sense_are_refused() {
    let _alone = alone();
    let block = Block::new(0);
    assert_eq!((block.open(0, 512), block.close(0, 512)), (INVALID, INVALID), "it is not divided");
    assert_eq!(block.change(0, BLOCK - 512, PartChange::Divide), INVALID);
    assert_eq!(block.change(512, BLOCK - 512, PartChange::Divide), INVALID);
    block.allow(0, false);
    assert_eq!(block.divide(), INVALID, "nobody may use it");
    block.allow(0, true);
    block.divide().unwrap();
    assert_eq!(block.divide(), INVALID, "it is divided");
    block.open(1024, 1000).unwrap();
    for (offset, bytes) in [
        (0, 0),
        (0, 1025),
        (100, 10),
        (1024, 1000),
        (1280, 1),
        (0, BLOCK),
        (BLOCK, 1),
        (BLOCK - 256, 257),
        (512, u64::MAX),
    ] {
        assert_eq!(block.open(offset, bytes), INVALID, "{offset} {bytes}");
    }
    for (offset, bytes) in [(1024, 999), (1280, 1), (0, 1024), (0u64.wrapping_sub(256), 256)] {
        assert_eq!(block.close(offset, bytes), INVALID, "{offset} {bytes}");
    }
    block.open(0, 1024).unwrap();
    block.open(2048, 1).unwrap();
    block.close(1024, 1000).unwrap();
    assert_eq!(block.close(1024, 1000), INVALID);
}

#[test]
fn parts_are_those_of_every_device_that_may_use_the_mapping() {
    let _alone = alone();
    let block = Block::divided(0);
    let (first, second) = (block.address, block.address + 4096);
    block.open(0, 4096).unwrap();
    assert_eq!(poke(1, first), ILLEGAL_ADDRESS);
    block.allow(1, true);
    block.open(4096, 512).unwrap();
    assert_eq!((poke(1, first), poke(1, second), poke(0, second)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(poke(1, second + 512), ILLEGAL_ADDRESS);
    block.close(0, 4096).unwrap();
    assert_eq!((poke(1, first), poke(0, first)), (ILLEGAL_ADDRESS, ILLEGAL_ADDRESS));
    block.allow(0, false);
    assert_eq!((poke(1, second), poke(0, second)), (Ok(()), ILLEGAL_ADDRESS));
    assert_eq!(Context::on(1).read(second, 1, LEGACY), [77]);
}

#[test]
fn what_is_mapped_anew_is_whole() {
    let _alone = alone();
    let block = Block::divided(0);
    block.open(512, 512).unwrap();
    let (at, cpu, home, memory) = (DevicePtr(block.address), block.cpu, DeviceId::new(0), fresh());
    cpu.vmm_unmap(home, at, BLOCK).unwrap();
    assert_eq!((block.open(0, 256), block.close(512, 512)), (INVALID, INVALID));
    let kind = MemoryKind { device: home, handle_types: 0, compression: 0, usage: 0 };
    cpu.vmm_create(memory, BLOCK, kind).unwrap();
    cpu.vmm_map(home, at, BLOCK, 0, memory).unwrap();
    cpu.vmm_release(home, memory).unwrap();
    assert_eq!(poke(0, at.0 + 512), ILLEGAL_ADDRESS);
    block.allow(0, true);
    assert_eq!(Context::new().read(at.0, (BLOCK / 4) as usize, LEGACY).len() as u64, BLOCK / 4);
    assert_eq!((poke(0, at.0), poke(0, at.0 + BLOCK - 4)), (Ok(()), Ok(())));
}

#[test]
fn a_suspended_process_goes_on_with_its_parts() {
    let _alone = alone();
    let (ctx, block) = (Context::on(1), Block::divided(1));
    let (part, bytes) = (block.address + 256, 256 << 10);
    block.open(256, bytes).unwrap();
    let words: Vec<u32> = (0..bytes as u32 / 4).map(|at| at ^ 0x5a5a).collect();
    ctx.write(part, &words, LEGACY);
    let step = |step| ctx.cpu.checkpoint(std::process::id().cast_signed(), step, 10_000).unwrap();
    step(CheckpointStep::Lock);
    step(CheckpointStep::Checkpoint);
    // SAFETY: mapped, and nothing writes to it now. What is asked is what the system has there, not
    // the device.
    let inside = unsafe { ((part & !4095) as *const u32).add(8192).read_volatile() };
    assert_eq!(inside, 0, "the memory has been given back");
    step(CheckpointStep::Restore);
    step(CheckpointStep::Unlock);
    assert_eq!(ctx.read(part, words.len(), LEGACY), words);
    assert_eq!(
        (poke(1, part), poke(1, part + bytes), poke(1, part - 256)),
        (Ok(()), ILLEGAL_ADDRESS, ILLEGAL_ADDRESS)
    );
    block.close(256, bytes).unwrap();
    assert_eq!(poke(1, part), ILLEGAL_ADDRESS);
}

/// Another process opens what was shared, looks at it and adds 5 to each word.
fn elsewhere(token: &[u8; 64]) -> bool {
    let text: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut other = Command::new(std::env::current_exe().unwrap());
    other
        .args(["--exact", "another_process_opens_just_a_part"])
        .env(TOKEN, text)
        .status()
        .unwrap()
        .success()
}

/// What that other process does.
fn open_elsewhere(text: &str) {
    let mut token = [0; 64];
    for (byte, digits) in token.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    }
    let ctx = Context::on(1);
    let (DevicePtr(at), bytes) = ctx.cpu.open_memory(ctx.id, &token, 1).unwrap();
    let words = ctx.read(at, bytes as usize / 4, LEGACY);
    assert!(words.iter().all(|word| *word == 1234), "{words:?}");
    let (before, behind) =
        (ctx.try_read(at - 4, 1, LEGACY), ctx.try_read(at, words.len() + 1, LEGACY));
    assert!(before.is_err() && behind.is_err(), "only the part");
    let next = at + bytes.next_multiple_of(256);
    assert_eq!((poke(1, at - 256), poke(1, next)), (ILLEGAL_ADDRESS, ILLEGAL_ADDRESS));
    ctx.write(at, &vec![1239; words.len()], LEGACY);
    ctx.cpu.close_memory(ctx.id, DevicePtr(at)).unwrap();
    assert_eq!(poke(1, at), ILLEGAL_ADDRESS);
}

#[test]
fn another_process_opens_just_a_part() {
    let _alone = alone();
    if let Ok(token) = std::env::var(TOKEN) {
        return open_elsewhere(&token);
    }
    let (ctx, block) = (Context::on(1), Block::new(1));
    let at = block.address;
    let share = |offset| ctx.cpu.share_memory(ctx.id, DevicePtr(at + offset), BLOCK - offset);
    ctx.write(at, &vec![1234; (BLOCK / 4) as usize], LEGACY);
    assert!(share(512).is_err(), "it is not divided");
    assert!(elsewhere(&share(0).unwrap()));
    assert_eq!(ctx.read(at + BLOCK - 4, 1, LEGACY), [1239]);

    block.divide().unwrap();
    assert!(share(0).is_err(), "nothing is open");
    for (offset, words) in [(0, 64), (4096 + 256, 2000), (BLOCK - 512, 128)] {
        block.open(offset, words as u64 * 4).unwrap();
        ctx.write(at + offset, &vec![1234; words], LEGACY);
    }
    for (offset, words) in [(0, 64), (4096 + 256, 2000), (BLOCK - 512, 128)] {
        assert!(elsewhere(&share(offset).unwrap()), "{offset}");
        assert_eq!(ctx.read(at + offset, words, LEGACY), vec![1239; words]);
    }
    assert!(share(4096).is_err() && share(4096 + 512).is_err(), "it starts elsewhere");
    block.close(0, 256).unwrap();
    assert!(share(0).is_err(), "it is closed");
}
