//! The structures and numbers are those of the C header.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use outboard_test_support::skip;

use super::*;

/// What is said of the structures: C's expression, and its value here. A structure that is
/// described whole also has its size compared.
macro_rules! layouts {
    ($($kind:ident $c:literal $rust:ident { $($of_c:literal = $of_rust:ident),* $(,)? })*) => {
        vec![$(
            layouts!(@size $kind $c $rust),
            $(Some((format!("offsetof({}, {})", $c, $of_c), offset_of!($rust, $of_rust))),)*
        )*]
    };
    (@size whole $c:literal $rust:ident) => {
        Some((format!("sizeof({})", $c), size_of::<$rust>()))
    };
    (@size begun $c:literal $rust:ident) => { None };
}

fn described() -> BTreeMap<String, usize> {
    let layouts: Vec<Option<(String, usize)>> = layouts! {
        begun "struct ibv_context" Context {
            "device" = device, "ops" = ops, "cmd_fd" = cmd_fd, "async_fd" = async_fd,
        }
        whole "struct ibv_context_ops" ContextOps {
            "poll_cq" = poll_cq, "req_notify_cq" = req_notify_cq,
            "post_send" = post_send, "post_recv" = post_recv,
        }
        begun "struct ibv_comp_channel" Channel { "context" = context, "fd" = fd }
        begun "struct ibv_cq" Cq { "context" = context }
        begun "struct ibv_pd" Domain { "context" = context }
        whole "struct ibv_mr" Region {
            "context" = context, "pd" = pd, "addr" = addr, "length" = length,
            "handle" = handle, "lkey" = lkey, "rkey" = rkey,
        }
        begun "struct ibv_qp" QueuePair {
            "context" = context, "qp_context" = qp_context, "pd" = pd, "send_cq" = send_cq,
            "recv_cq" = recv_cq, "srq" = srq, "handle" = handle, "qp_num" = qp_num,
        }
        whole "struct ibv_qp_cap" QueuePairCap {
            "max_send_wr" = max_send_wr, "max_recv_wr" = max_recv_wr,
            "max_send_sge" = max_send_sge, "max_recv_sge" = max_recv_sge,
            "max_inline_data" = max_inline_data,
        }
        whole "struct ibv_qp_init_attr" QueuePairInit {
            "qp_context" = qp_context, "send_cq" = send_cq, "recv_cq" = recv_cq, "srq" = srq,
            "cap" = cap, "qp_type" = qp_type, "sq_sig_all" = sq_sig_all,
        }
        whole "union ibv_gid" GidBytes {}
        whole "struct ibv_global_route" GlobalRoute {
            "dgid" = dgid, "flow_label" = flow_label, "sgid_index" = sgid_index,
            "hop_limit" = hop_limit, "traffic_class" = traffic_class,
        }
        whole "struct ibv_ah_attr" AddressHandle {
            "grh" = grh, "dlid" = dlid, "sl" = sl, "src_path_bits" = src_path_bits,
            "static_rate" = static_rate, "is_global" = is_global, "port_num" = port_num,
        }
        whole "struct ibv_qp_attr" QueuePairAttr {
            "qp_state" = qp_state, "cur_qp_state" = cur_qp_state, "path_mtu" = path_mtu,
            "path_mig_state" = path_mig_state, "qkey" = qkey, "rq_psn" = rq_psn,
            "sq_psn" = sq_psn, "dest_qp_num" = dest_qp_num,
            "qp_access_flags" = qp_access_flags, "cap" = cap, "ah_attr" = ah_attr,
            "alt_ah_attr" = alt_ah_attr, "pkey_index" = pkey_index,
            "alt_pkey_index" = alt_pkey_index, "en_sqd_async_notify" = en_sqd_async_notify,
            "sq_draining" = sq_draining, "max_rd_atomic" = max_rd_atomic,
            "max_dest_rd_atomic" = max_dest_rd_atomic, "min_rnr_timer" = min_rnr_timer,
            "port_num" = port_num, "timeout" = timeout, "retry_cnt" = retry_cnt,
            "rnr_retry" = rnr_retry, "alt_port_num" = alt_port_num,
            "alt_timeout" = alt_timeout, "rate_limit" = rate_limit,
        }
        whole "struct ibv_sge" Piece { "addr" = addr, "length" = length, "lkey" = lkey }
        whole "struct ibv_send_wr" SendWork {
            "wr_id" = wr_id, "next" = next, "sg_list" = sg_list, "num_sge" = num_sge,
            "opcode" = opcode, "send_flags" = send_flags, "imm_data" = imm_data,
            "wr.rdma.remote_addr" = remote_addr, "wr.rdma.rkey" = rkey,
        }
        whole "struct ibv_recv_wr" ReceiveWork {
            "wr_id" = wr_id, "next" = next, "sg_list" = sg_list, "num_sge" = num_sge,
        }
        whole "struct ibv_wc" Completion {
            "wr_id" = wr_id, "status" = status, "opcode" = opcode, "vendor_err" = vendor_err,
            "byte_len" = byte_len, "imm_data" = imm_data, "qp_num" = qp_num,
            "src_qp" = src_qp, "wc_flags" = wc_flags, "pkey_index" = pkey_index,
            "slid" = slid, "sl" = sl, "dlid_path_bits" = dlid_path_bits,
        }
        whole "struct ibv_async_event" AsyncEvent {
            "element" = element, "event_type" = event_type,
        }
        whole "struct ibv_port_attr" PortAttr {
            "state" = state, "max_mtu" = max_mtu, "active_mtu" = active_mtu,
            "gid_tbl_len" = gid_tbl_len, "port_cap_flags" = port_cap_flags,
            "max_msg_sz" = max_msg_sz, "bad_pkey_cntr" = bad_pkey_cntr,
            "qkey_viol_cntr" = qkey_viol_cntr, "pkey_tbl_len" = pkey_tbl_len, "lid" = lid,
            "sm_lid" = sm_lid, "lmc" = lmc, "max_vl_num" = max_vl_num, "sm_sl" = sm_sl,
            "subnet_timeout" = subnet_timeout, "init_type_reply" = init_type_reply,
            "active_width" = active_width, "active_speed" = active_speed,
            "phys_state" = phys_state, "link_layer" = link_layer, "flags" = flags,
            "port_cap_flags2" = port_cap_flags2,
        }
        whole "struct ibv_device_attr" DeviceAttr {
            "fw_ver" = fw_ver, "node_guid" = node_guid, "sys_image_guid" = sys_image_guid,
            "max_mr_size" = max_mr_size, "page_size_cap" = page_size_cap,
            "vendor_id" = vendor_id, "vendor_part_id" = vendor_part_id, "hw_ver" = hw_ver,
            "max_qp" = max_qp, "max_qp_wr" = max_qp_wr,
            "device_cap_flags" = device_cap_flags, "max_sge" = max_sge,
            "max_sge_rd" = max_sge_rd, "max_cq" = max_cq, "max_cqe" = max_cqe,
            "max_qp_rd_atom" = max_qp_rd_atom, "max_qp_init_rd_atom" = max_qp_init_rd_atom,
            "max_pkeys" = max_pkeys, "local_ca_ack_delay" = local_ca_ack_delay,
            "phys_port_cnt" = phys_port_cnt,
        }
        whole "struct ibv_gid_entry" GidEntry {
            "gid" = gid, "gid_index" = gid_index, "port_num" = port_num,
            "gid_type" = gid_type, "ndev_ifindex" = ndev_ifindex,
        }
    };
    let numbers = NUMBERS.iter().map(|(name, value)| ((*name).to_owned(), *value as usize));
    layouts.into_iter().flatten().chain(numbers).collect()
}

/// The folder to search for headers: that of an installed package, or the one that `cargo xtask
/// rdma` lays out.
fn headers() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let places = [PathBuf::from("/usr/include"), target.join("rdma/packages/usr/include")];
    places.into_iter().find(|place| place.join("infiniband/verbs.h").exists())
}

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    let Some(include) = headers() else {
        skip!("infiniband/verbs.h is not there: `cargo xtask rdma --only-packages` fetches it")
    };
    let described = described();
    let mut program = "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\n\
        int main(void) {\n"
        .to_owned();
    for expression in described.keys() {
        writeln!(program, "printf(\"%lld {expression}\\n\", (long long)({expression}));").unwrap();
    }
    program += "}\n";
    let folder = tempfile::tempdir().unwrap();
    let [source, executable] = ["layout.c", "layout"].map(|name| folder.path().join(name));
    std::fs::write(&source, program).unwrap();
    let compiled =
        Command::new("cc").arg("-I").arg(include).arg("-o").arg(&executable).arg(&source).output();
    let Ok(compiled) = compiled else { skip!("there is no C compiler `cc`") };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&executable).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let of_header: BTreeMap<String, usize> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(value, name)| (name.to_owned(), value.parse().unwrap()))
        .collect();
    let wrong: Vec<_> = described
        .iter()
        .filter(|(name, value)| of_header.get(*name) != Some(value))
        .map(|(name, value)| format!("{name}: {value} here, {:?} in C", of_header.get(name)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(of_header.len() > 150, "the program has said what it was asked");
}
