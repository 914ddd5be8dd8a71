# Write a C table of everything that a folder defines, one symbol a file: lib/formats/zero.c must
# define uns_format_zero, or the link fails. `skip` names files of the folder that are not entries.
function(unshard_table folder header type array prefix out)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.c)
  list(SORT files)
  set(decl "")
  set(rows "")
  foreach(f IN LISTS files)
    get_filename_component(name ${f} NAME_WE)
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
