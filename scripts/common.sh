# What the scripts share; sourced, never run.

# The folder for everything that is built or downloaded and outlives a run. Nothing is written into the source tree.
leadgate_cache=${XDG_CACHE_HOME:-$HOME/.cache}/leadgate

# Chooses the pinned Rust. Where rustup has that version under another name (`stable`), that one is taken, so that nothing is downloaded;
# otherwise rustup installs what rust-toolchain.toml names.
use_pinned_rust() {
  local root=$1 wanted name
  wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' "$root/rust-toolchain.toml")
  command -v cargo >/dev/null || PATH=$HOME/.cargo/bin:$PATH
  command -v cargo >/dev/null || { echo "no Rust here: install $wanted by rustup" >&2; return 1; }
  command -v rustup >/dev/null || return 0
  while read -r name _; do
    if [[ $(RUSTUP_TOOLCHAIN=$name rustc --version 2>/dev/null) == "rustc $wanted "* ]]; then
      export RUSTUP_TOOLCHAIN=$name
      return
    fi
  done < <(rustup toolchain list)
}
