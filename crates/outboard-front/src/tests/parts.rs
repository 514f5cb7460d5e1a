//! Mappings that are cut into allocations.

use std::sync::atomic::Ordering;

use outboard_abi::{CUdeviceptr, CUmemAccess_flags_enum, CUmemAccessDesc, CUresult};

use super::cases::{GRANULE, on_device, physical, reserved};
use super::program::Program;
use super::*;
use crate::backend::{DevicePtr, PartChange, Result};

/// A mapping that the first device may use.
fn mapping(program: Program) -> CUdeviceptr {
    let (at, memory) = (reserved(program), physical(program).expect("the recorder has memory"));
    call!(program, cuMemMap, at, GRANULE, 0, memory, 0).expect("both are there");
    let flags = CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let access = CUmemAccessDesc { location: on_device(), flags };
    call!(program, cuMemSetAccess, at, GRANULE, &raw const access, 1).expect("it is mapped");
    at
}

#[test]
fn parts_lie_in_mappings() {
    let program = Program::current();
    let at = mapping(program);
    let change = |address, bytes| {
        crate::calls::vmm::change_part(program.process, DevicePtr(address), bytes, PartChange::Open)
    };
    let asked = program.asked_by(|| assert_eq!(change(at + 512, GRANULE as u64 - 512), Ok(())));
    assert_eq!(
        asked,
        ["vmm_part(address: DevicePtr(0x10000000200), bytes: 2096640, change: Open)"]
    );
    let asked = program.asked_by(|| {
        for (address, bytes) in
            [(at + 512, GRANULE as u64), (at - 1, 1), (at + GRANULE as u64, 1), (at, 0)]
        {
            assert_eq!(change(address, bytes), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
    });
    assert!(asked.is_empty(), "{asked:?}");
}

/// A program may not share what is mapped, as natively; who cuts mappings into allocations may
/// share those.
#[test]
fn only_who_cuts_mappings_shares_what_is_mapped() {
    let program = Program::current();
    let at = mapping(program);
    let share = |address| -> Result<()> { ask!(program, cuIpcGetMemHandle, address).map(drop) };
    assert_eq!(share(at), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    program.process.vmm.is_cut.store(true, Ordering::Relaxed);
    let asked = program.asked_by(|| assert_eq!(share(at + 1024), Ok(())));
    assert!(asked[0].contains("address: DevicePtr(0x10000000400), bytes: 2096128"), "{asked:?}");
    assert_eq!(share(at + GRANULE as u64), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
}
