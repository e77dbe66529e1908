//! Files that pass for programs.

/// Returns the smallest file that passes for a static program of a machine (`e_machine` of the ELF header), followed by a text.
#[must_use]
pub fn static_program(is_64: bool, machine: u16, text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    if is_64 {
        bytes[4] = 2;
    }
    // An executable.
    bytes[16] = 2;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes.extend_from_slice(text);
    bytes
}
