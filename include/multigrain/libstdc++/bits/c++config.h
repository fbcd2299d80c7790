// For mgcc and mg++, in front of the header of libstdc++ that has this name: its templates (streams, strings, locales'
// facets) become code of the program, with access checks, instead of the library's code, which has none.
#pragma GCC system_header
#include_next <bits/c++config.h>
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0
