//! Tests of the pure core as a whole: objects in, pools out.

mod cluster;
mod examples;
mod reactions;
mod served_names;
