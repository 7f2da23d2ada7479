//! Where leaders come from.

pub mod static_list;
