//! Variables of modules, which copies and fills may name as long as their module is loaded.

use crate::backend::DevicePtr;
use outboard_abi::{CUdeviceptr, CUmodule, CUresult};

use super::program::Program;
use super::*;

const ADDRESS: CUdeviceptr = 0x7e00_0000_0000;

/// Where the variable of a module is, which has so many bytes.
fn variable(program: Program, module: CUmodule, bytes: u64) -> CUdeviceptr {
    program.recorder.answer_with("module_global", (DevicePtr(ADDRESS), bytes, false));
    let mut found = 0_usize;
    let mut address = 0;
    let name = c"variable".as_ptr();
    call!(program, cuModuleGetGlobal_v2, &raw mut address, &raw mut found, module, name)
        .expect("it has any");
    assert_eq!(found as u64, bytes);
    address
}

fn fill(program: Program, address: CUdeviceptr, bytes: usize) -> crate::backend::Result<()> {
    call!(program, cuMemsetD8Async, address, 1, bytes, core::ptr::null_mut())
}

#[test]
fn a_variable_is_there_as_long_as_its_module() {
    let program = Program::current();
    let module = program.module();
    let address = variable(program, module, 64);
    assert_eq!(fill(program, address, 64), Ok(()));
    assert_eq!(fill(program, address, 65), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    call!(program, cuModuleUnload, module).expect("nothing fails");
    let asked = program.asked_by(|| {
        assert_eq!(fill(program, address, 64), Err(CUresult::CUDA_ERROR_INVALID_VALUE))
    });
    assert!(asked.is_empty(), "{asked:?}");
}

/// A device gives the memory of a module that is unloaded to the next one.
#[test]
fn the_next_module_s_variable_in_the_same_place_may_be_larger() {
    let program = Program::current();
    let module = program.module();
    variable(program, module, 64);
    call!(program, cuModuleUnload, module).expect("nothing fails");
    let address = variable(program, program.module(), 4096);
    assert_eq!(fill(program, address, 4096), Ok(()));
}
