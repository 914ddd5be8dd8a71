# Writes a C table of what a folder's files define: lib/formats/dcp.c must define uns_format_dcp, or the link fails. Names
# after `out` are further ones that a file defines besides its own.
function(unshard_table folder header type array prefix out)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.c)
  list(SORT files)
  set(names ${ARGN})
  foreach(f IN LISTS files)
    get_filename_component(name ${f} NAME_WE)
    list(APPEND names ${name})
  endforeach()
  list(SORT names)
  set(decl "")
  set(rows "")
  foreach(name IN LISTS names)
    string(APPEND decl "extern const struct ${type} ${prefix}${name};\n")
    string(APPEND rows "\t&${prefix}${name},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${out} CONTENT
"/* Written by CMake from the files of ${header}'s folder. */
#include \"${header}\"

${decl}
const struct ${type} *const ${array}[] = {
${rows}\tNULL,
};
" @ONLY)
endfunction()
