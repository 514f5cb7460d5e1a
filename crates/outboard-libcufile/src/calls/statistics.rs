//! Statistics.

use core::ffi::c_int;

use crate::border::put;
use crate::driver;
use crate::statistics::{self, Level1, Level2, Level3};
use crate::status::Result;

pub(crate) unsafe fn cuFileSetStatsLevel(level: c_int) -> Result<()> {
    statistics::set_level(level)
}

pub(crate) unsafe fn cuFileGetStatsLevel(out: *mut c_int) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { put(out, statistics::level()) }
}

pub(crate) unsafe fn cuFileStatsStart() -> Result<()> {
    driver::is_open()?;
    statistics::start();
    Ok(())
}

pub(crate) unsafe fn cuFileStatsStop() -> Result<()> {
    driver::is_open()?;
    statistics::stop();
    Ok(())
}

pub(crate) unsafe fn cuFileStatsReset() -> Result<()> {
    driver::is_open()?;
    statistics::reset();
    Ok(())
}

pub(crate) unsafe fn cuFileGetStatsL1(out: *mut Level1) -> Result<()> {
    driver::is_open()?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, statistics::level_1()?) }
}

pub(crate) unsafe fn cuFileGetStatsL2(out: *mut Level2) -> Result<()> {
    driver::is_open()?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, statistics::level_2()?) }
}

pub(crate) unsafe fn cuFileGetStatsL3(out: *mut Level3) -> Result<()> {
    driver::is_open()?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, statistics::level_3()?) }
}
