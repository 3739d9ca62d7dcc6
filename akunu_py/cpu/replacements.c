// Leads calls of some of MLX's functions to others.
//
// This is a library with the names of these functions alone. It is opened before MLX, with global
// symbols, so the dynamic linker finds its functions first. Neither the kernels nor MLX may be
// opened so: all of their symbols would be global, and MLX has some that llama.cpp has, too.
//
// Each function is one that the linker asks for (ifunc): the name then stands for its answer. The
// build defines REPLACEMENTS, a list such as REPLACE(0, "name") REPLACE(1, "name").

static void* functions[16];

__attribute__((visibility("default"))) void akunu_lead(int number, void* function) {
  functions[number] = function;
}

#define REPLACE(number, name)                                                           \
  static void* resolve_##number(void) { return functions[number]; }                     \
  __attribute__((ifunc("resolve_" #number), visibility("default"))) void lead_##number( \
      void) __asm__(name);

REPLACEMENTS
